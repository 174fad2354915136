"""A hook of mkdocs that brings `results/` into the pages: pictures as they are, tables in the place of a link to them.

So a page reads on GitHub too, and shows what `make results` wrote last: nothing is copied by hand.
"""

import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
FOLDERS = (RESULTS, RESULTS / "language")
TABLE = re.compile(r"^\[[^\]]+\]\(\.\./results/(\S+\.md)\)$", re.MULTILINE)


def with_results(markdown: str) -> str:
    """A page as mkdocs should have it: a link that stands alone becomes its table, the others lead into the site."""
    shown = TABLE.sub(lambda link: (RESULTS / link[1]).read_text(encoding="utf-8"), markdown)
    return shown.replace("](../results/", "](results/")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return with_results(markdown)


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs once: adds the pictures, and the tables that a reader may want as files."""
    from mkdocs.structure.files import File

    for path in sorted(p for kind in ("png", "csv", "json") for of in FOLDERS for p in of.glob(f"*.{kind}")):
        where = path.relative_to(RESULTS).as_posix()
        files.append(File.generated(config, f"results/{where}", abs_src_path=str(path)))
    return files
