"""What does a fine-tune break? A small language model, trained on three kinds of text, learns a fourth.

    python results/language/experiment.py WORK

makes the texts from packages of Debian (bible-kjv, manpages, manpages-dev, manpages-de, man-db) and the sources of
Python's own library, trains a byte-level BPE tokenizer and a GPT-2 of 1.3 million parameters on three domains, and
fine-tunes it on German manual pages with three seeds: without replay, with 1 % and 5 % of old text drawn uniformly,
with 5 % drawn by the trend of each domain, and with a low-rank adapter. Every held-out token is scored by the base and
by each tuned model in one pass (`wane.language`). Beside this script it writes what changed (groups.csv), how few
documents show it (few.csv), and a figure. One thread; what is done is not done again.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import polars as pl
import scipy.stats
import torch

import wane
from wane.language.causal_model import load_model
from wane.language.comparison import compare_tokens
from wane.language.token_files import TokenSettings, score_texts
from wane.measures.group_metrics import GroupMetrics

HERE = Path(__file__).parent
OLD, NEW = ("bible", "manual", "python"), "german"
TRAIN_CHARACTERS, TEST_DOCUMENTS, DOCUMENT = 1_200_000, 60, 2000
VOCABULARY, CONTEXT, ROWS = 4096, 128, 16
BASE_STEPS, TUNE_STEPS, PROBE_EVERY = 1200, 120, 10
SEEDS = (0, 1, 2)
METHODS = {
    "no replay": {"replay": 0.0},
    "1 % uniform": {"replay": 0.01},
    "5 % uniform": {"replay": 0.05},
    "5 % by trend": {"replay": 0.05, "trend": True},
    "adapter": {"replay": 0.0, "adapter": True},
}


def texts_of(domain: str) -> str:
    """All text of a domain, as its package ships it."""
    if domain == "bible":
        lines = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
        return re.sub(r"^\w+:\d+ ", "", lines, flags=re.MULTILINE)
    if domain == "python":
        folder = Path(sysconfig.get_paths()["stdlib"])
        files = sorted(p for p in folder.rglob("*.py") if not {"test", "site-packages", "idlelib"} & set(p.parts))
        return "\n\n".join(p.read_text(encoding="utf-8", errors="ignore") for p in files)
    pages = sorted(Path("/usr/share/man/de/man1" if domain == NEW else "/usr/share/man/man2").glob("*.gz"))
    pages += [] if domain == NEW else sorted(Path("/usr/share/man/man3").glob("*.3.gz"))[:600]
    shown = []
    for page in pages:
        done = subprocess.run(["man", "-E", "UTF-8", str(page)], capture_output=True, text=True, check=False,
                              env={"MANWIDTH": "100", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})  # fmt: skip
        shown.append(re.sub(r" {2,}", " ", re.sub(r".\x08", "", done.stdout)))  # without overstrikes and justification
        if sum(map(len, shown)) > TRAIN_CHARACTERS + 2 * TEST_DOCUMENTS * DOCUMENT:
            break
    return "\n".join(shown)


def make_texts(work: Path) -> None:
    """A training text and held-out documents for each domain; held-out ones are spread over the whole."""
    (work / "test").mkdir(parents=True, exist_ok=True)
    for domain in (*OLD, NEW):
        whole = texts_of(domain)
        pieces = [whole[i : i + DOCUMENT] for i in range(0, len(whole) - DOCUMENT, DOCUMENT)]
        random.Random(0).shuffle(pieces)
        test, train = pieces[:TEST_DOCUMENTS], pieces[TEST_DOCUMENTS:]
        with (work / "test" / f"{domain}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text, "domain": domain}, ensure_ascii=False) + "\n" for text in test)
        (work / f"{domain}.txt").write_text("\n".join(train)[:TRAIN_CHARACTERS], encoding="utf-8")


def make_tokenizer(work: Path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train([str(work / f"{domain}.txt") for domain in (*OLD, NEW)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made)


def read_ids(work: Path, tokenizer) -> dict[str, torch.Tensor]:
    return {d: torch.tensor(tokenizer((work / f"{d}.txt").read_text(encoding="utf-8"), verbose=False).input_ids)
            for d in (*OLD, NEW)}  # fmt: skip


def rows_of(ids: torch.Tensor, count: int, g: torch.Generator) -> torch.Tensor:
    starts = torch.randint(0, len(ids) - CONTEXT - 1, (count,), generator=g)
    return torch.stack([ids[s : s + CONTEXT + 1] for s in starts])


def train(model, draw, steps: int, lr: float, after_step=None) -> None:
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.1)
    model.train()
    for step in range(steps):
        batch = draw(step)
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        if after_step is not None:
            after_step(step)
        if step % 100 == 0:
            print(f"  step {step}: loss {float(loss):.3f}", flush=True)


def make_base(work: Path, tokenizer, ids) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = work / "base"
    if (folder / "config.json").exists():
        return folder
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)

    def draw(_):
        domains = torch.randint(0, len(OLD), (ROWS,), generator=g).tolist()
        return torch.cat([rows_of(ids[OLD[d]], 1, g) for d in domains])[:, :CONTEXT]

    train(model, draw, BASE_STEPS, lr=3e-3)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def tune(work: Path, base: Path, tokenizer, ids, method: str, seed: int) -> Path:
    """Fine-tune on the new domain; rows of old ones take the place of some, drawn uniformly or by their trend."""
    from transformers import AutoModelForCausalLM

    folder = work / folder_name(method, seed)
    if (folder / "done").exists():
        return folder
    settings = METHODS[method]
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base)
    lr = 1e-3
    if settings.get("adapter"):
        import peft

        lr = 3e-3
        adapter = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
        model = peft.get_peft_model(model, adapter)
    probe = {d: rows_of(ids[d], 4, torch.Generator().manual_seed(99)) for d in OLD}
    history = wane.History(class_to_task=[0] * len(OLD))
    sampler = wane.TrendSampler("log_tlr", window=4, gamma=2.0, slope="standardised", source="holdout")
    shares = np.full(len(OLD), 1 / len(OLD))

    def draw(_):
        old = (torch.rand(ROWS, generator=g) < settings["replay"]).tolist()
        chosen = torch.multinomial(torch.from_numpy(shares), ROWS, replacement=True, generator=g).tolist()
        picked = [OLD[d] if is_old else NEW for is_old, d in zip(old, chosen, strict=True)]
        return torch.cat([rows_of(ids[d], 1, g) for d in picked])[:, :CONTEXT]

    def look(step):
        nonlocal shares
        if not settings.get("trend") or step % PROBE_EVERY:
            return
        metrics = GroupMetrics(len(OLD))
        model.eval()
        with torch.no_grad():
            for i, domain in enumerate(OLD):
                rows = probe[domain]
                logits = model(input_ids=rows[:, :CONTEXT]).logits
                labels = rows[:, 1:]
                metrics.update(logits, labels, groups=torch.full(labels.shape, i))
        model.train()
        history.record(metrics, step=step, task=0, split="holdout")
        shares = sampler.probabilities(history).numpy()

    train(model, draw, TUNE_STEPS, lr=lr, after_step=look)
    if settings.get("adapter"):
        model.peft_config["default"].base_model_name_or_path = str(base)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "done").touch()
    return folder


def folder_name(method: str, seed: int) -> str:
    return f"{method.replace(' ', '_').replace('%', 'percent')}-{seed}"


def score(work: Path, base: Path, folder: Path) -> list[Path]:
    out = [folder / "base.parquet", folder / "tuned.parquet"]
    if not all(path.exists() for path in out):
        score_texts(load_model(str(base)), [work / "test"], out[0], settings=TokenSettings(stride=64),
                    against=load_model(str(folder)), against_out=out[1])  # fmt: skip
    return out


def main(work: Path) -> None:
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "test" / f"{NEW}.jsonl").exists():
        make_texts(work)
    tokenizer = make_tokenizer(work)
    ids = read_ids(work, tokenizer)
    print({d: len(x) for d, x in ids.items()})
    base = make_base(work, tokenizer, ids)
    rows = []
    for seed in SEEDS:
        for method in METHODS:
            print(method, seed, flush=True)
            files = score(work, base, tune(work, base, tokenizer, ids, method, seed))
            found = compare_tokens(*files, by=("domain", "kind"), worst=0)
            for level, table in found.tables.items():
                rows += [{"method": method, "seed": seed, "level": "+".join(level) or "all", **row}
                         for row in table.iter_rows(named=True)]  # fmt: skip
    groups = pl.DataFrame(rows, infer_schema_length=None)
    groups.write_csv(HERE / "groups.csv", float_precision=5)
    few = [row for seed in SEEDS for method in ("no replay", "1 % uniform", "5 % uniform")
           for row in how_few(work / folder_name(method, seed), method, seed)]  # fmt: skip
    means = (
        pl.DataFrame(few)
        .group_by("method", "documents", "signal", maintain_order=True)
        .agg(pl.col("tokens", "found").mean())
    )
    means.write_csv(HERE / "few.csv", float_precision=3)
    draw_figure(groups)


def how_few(folder: Path, method: str, seed: int) -> list[dict]:
    """How often some documents of an old domain show its decline, by a one-sided test at 5 %, documents as units."""
    signs = {"loss": 1, "log_rank": 1, "accuracy": -1, "ctl": -1}
    columns = {
        "loss": pl.col("loss"),
        "log_rank": pl.col("rank").log(),
        "accuracy": pl.col("accuracy"),
        "ctl": pl.col("ctl"),
    }
    before, after = (
        pl.read_parquet(folder / f"{name}.parquet").select("document", "domain", **columns)
        for name in ("base", "tuned")
    )
    moved = before.with_columns(sign * (after[name] - before[name]) for name, sign in signs.items())
    sums = moved.group_by("domain", "document", maintain_order=True).agg(pl.len().alias("n"), pl.col(*signs).sum())
    g, rows = np.random.default_rng(seed), []
    for domain in OLD:
        own = sums.filter(pl.col("domain") == domain)
        n = own["n"].to_numpy().astype(float)
        for count in (3, 5, 10):
            chosen = np.stack([g.choice(len(n), count, replace=False) for _ in range(200)])
            for name in signs:
                v = own[name].to_numpy()[chosen]
                mean = v.sum(1) / n[chosen].sum(1)
                rest = v - mean[:, None] * n[chosen]
                error = np.sqrt((rest**2).sum(1) * count / (count - 1)) / n[chosen].sum(1)
                found = float((mean / error > scipy.stats.t.ppf(0.95, count - 1)).mean())
                rows.append(
                    {"method": method, "documents": count, "signal": name, "tokens": n.mean() * count, "found": found}
                )
    return rows


def draw_figure(groups: pl.DataFrame) -> None:
    """Left: what each domain lost. Right: forgetting against the KL on the new domain."""
    import matplotlib.pyplot as plt

    colours = dict(zip(METHODS, ("#1c1e26", "#e69f00", "#0072b2", "#56b4e9", "#d55e00"), strict=True))
    domains = groups.filter(pl.col("level") == "domain")
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.7), layout="constrained", width_ratios=(3, 2))
    for k, method in enumerate(METHODS):
        own = domains.filter(pl.col("method") == method)
        for i, domain in enumerate(OLD):
            ratio = own.filter(pl.col("domain") == domain)["perplexity_ratio"].to_numpy()
            left.bar(
                i + 0.16 * (k - 2),
                ratio.mean() - 1,
                0.14,
                bottom=1,
                color=colours[method],
                label=method if not i else None,
            )
            left.plot([i + 0.16 * (k - 2)] * len(ratio), ratio, ".", color="#888888", ms=3)
        old = (
            own.filter(pl.col("domain").is_in(OLD))
            .group_by("seed", maintain_order=True)
            .agg(pl.col("loss_change").mean())
        )
        new = own.filter(pl.col("domain") == NEW)
        right.plot(new["kl_base_tuned"], old["loss_change"], "o", color=colours[method], ms=4)
    left.set_yscale("log")
    left.set_yticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"], minor=False)
    left.minorticks_off()
    left.set_xticks(range(len(OLD)), OLD)
    left.set_ylabel("perplexity, after / before", fontsize=8)
    left.legend(frameon=False, fontsize=7, ncols=2)
    right.set_xlabel("KL(base ‖ tuned), new domain, nats", fontsize=8)
    right.set_ylabel("rise of the loss, old domains", fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.savefig(HERE / "forgetting.png", dpi=200)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
