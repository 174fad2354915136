"""A hook of mkdocs that turns formulas into MathML, which browsers draw by themselves: no script, no font, no network.

Formulas are written in LaTeX between dollar signs, as GitHub shows them too. Only what wane's formulas use is
understood; anything else stops the build.
"""

import html
import re
from typing import Any

WORDS = {r"\ln": "ln", r"\log": "log", r"\exp": "exp", r"\max": "max", r"\min": "min"}
SIGNS = {"-": "\u2212", r"\ge": "\u2265", r"\le": "\u2264", r"\approx": "\u2248", r"\in": "\u2208", r"\ell": "\u2113"}
SIGNS |= {r"\cdot": "\u00b7", r"\infty": "\u221e", r"\to": "\u2192", r"\sum": "\u2211", r"\lvert": "|", r"\rvert": "|"}
TOKEN = re.compile(r"\\[a-zA-Z]+|\\,|\d+(?:\.\d+)?|\S")


def convert(latex: str) -> str:
    r"""MathML of a formula.

    >>> print(convert(r"-\ln p_y"))
    <math><mo>−</mo><mo form="prefix" lspace="0.17em" rspace="0.17em">ln</mo><msub><mi>p</mi><mi>y</mi></msub></math>
    >>> convert(r"\sqrt{2}")
    Traceback (most recent call last):
    ...
    ValueError: \sqrt is not understood in \sqrt{2}: add it to docs/mathml.py
    """
    tokens = TOKEN.findall(latex)

    def group() -> str:
        """What follows: one sign, or all between braces."""
        if tokens[0] != "{":
            return atom()
        tokens.pop(0)
        parts = []
        while tokens[0] != "}":
            parts.append(scripted())
        tokens.pop(0)
        return f"<mrow>{''.join(parts)}</mrow>"

    def atom() -> str:
        token = tokens.pop(0)
        if token == r"\frac":
            return f"<mfrac>{group()}{group()}</mfrac>"
        if token == r"\mathrm":
            return f'<mi mathvariant="normal">{re.sub("<[^>]*>", "", group())}</mi>'
        if token in WORDS:
            gap = "0" if tokens[:1] == ["("] else "0.17em"
            return f'<mo form="prefix" lspace="0.17em" rspace="{gap}">{WORDS[token]}</mo>'
        if token == r"\,":
            return '<mspace width="0.17em"/>'
        if token in SIGNS:
            return f"<mo>{SIGNS[token]}</mo>" if token != r"\ell" else f"<mi>{SIGNS[token]}</mi>"
        if token[0] == "\\":
            raise ValueError(f"{token} is not understood in {latex}: add it to docs/mathml.py")
        kind = "mn" if token[0].isdigit() else "mi" if token.isalpha() else "mo"
        return f"<{kind}>{html.escape(token)}</{kind}>"

    def scripted() -> str:
        base = atom() if tokens[0] != "{" else group()
        while tokens and tokens[0] in "_^":
            tag = "msub" if tokens.pop(0) == "_" else "msup"
            base = f"<{tag}>{base}{group()}</{tag}>"
        return base

    parts = []
    while tokens:
        parts.append(scripted())
    return f"<math>{''.join(parts)}</math>"


def on_page_content(content: str, **_: Any) -> str:
    """Replace what the extension arithmatex has marked as formulas."""
    for tag, opening, closing, math in (
        ("span", r"\\\(", r"\\\)", "<math>"),
        ("div", r"\\\[", r"\\\]", '<math display="block">'),
    ):
        pattern = re.compile(rf'<{tag} class="arithmatex">{opening}(.*?){closing}</{tag}>', re.DOTALL)
        content = pattern.sub(lambda m, math=math: convert(html.unescape(m[1])).replace("<math>", math), content)
    return content
