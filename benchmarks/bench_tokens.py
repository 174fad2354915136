"""What scoring tokens costs beyond the model: `linear_signals` and whole texts, relative to what must be done anyway.

    python -m benchmarks.bench_tokens [--threads 1] [--rounds 7]

Targets: `linear_signals` at most 1.25 x its matrix product alone; scoring texts at most 1.10 x a bare forward pass with
`cross_entropy` over the same batches, at vocabularies of 32,000 and 128,000; memory beyond the model's own pass at most
10 % of one batch's logits.
"""

import argparse
import time

import torch
import torch.nn.functional as F

import wane
from benchmarks.bench_signals import extra_memory
from benchmarks.timing import interleaved, ratio, table
from wane.language.causal_model import CausalModel, wrap_model
from wane.language.texts import Document
from wane.language.tokens import Encoded, score_documents

VOCABULARIES = (32_000, 128_000)
FEATURES, LAYERS, CONTEXT, ROWS = 256, 4, 256, 4


class Words:
    """A tokenizer that says what the model needs to know of one; the documents come as numbers."""

    is_fast, bos_token_id = True, None

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __call__(self, text):
        return type("Encoding", (), {"input_ids": [1]})


def model_of(vocabulary) -> tuple[object, CausalModel]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=vocabulary, n_positions=CONTEXT, n_embd=FEATURES, n_layer=LAYERS, n_head=4,
                        bos_token_id=None, eos_token_id=None)  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    return model, wrap_model(model, Words(vocabulary))


def documents(vocabulary):
    g = torch.Generator().manual_seed(0)
    made = []
    for i in range(ROWS):
        ids = torch.randint(0, vocabulary, (CONTEXT + 1,), generator=g).numpy()
        places = torch.arange(2 * (CONTEXT + 1)).view(-1, 2).numpy()
        made.append(Encoded(Document(str(i), "ab" * (CONTEXT + 1), "d"), ids, places, 0))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for vocabulary in VOCABULARIES:
        model, asked = model_of(vocabulary)
        docs = documents(vocabulary)
        ids = torch.stack([torch.from_numpy(e.ids) for e in docs])
        hidden = asked.body(ids[:, :-1], torch.ones_like(ids[:, :-1])).detach().flatten(0, 1)
        labels = ids[:, 1:].flatten()

        def bare(model=model, ids=ids):
            with torch.no_grad():
                logits = model(input_ids=ids[:, :-1], use_cache=False).logits
                return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")

        def ours(asked=asked, docs=docs):
            return list(score_documents(asked, docs, stride=CONTEXT, most=ROWS * CONTEXT))

        def product(hidden=hidden, weight=asked.weight):
            with torch.no_grad():
                return hidden @ weight.T

        def signals(hidden=hidden, weight=asked.weight, labels=labels):
            return wane.linear_signals(hidden, weight, labels)

        times = interleaved(
            {"bare": bare, "ours": ours, "product": product, "signals": signals},
            rounds=options.rounds, clock=time.process_time, warm=1,
        )  # fmt: skip
        logits = torch.empty(len(labels), vocabulary, device="meta")
        rows.append(
            (
                f"{vocabulary:,}",
                f"{ratio(times, 'ours', 'bare'):.2f}",
                f"{ratio(times, 'signals', 'product'):.2f}",
                f"{extra_memory(signals, logits):.1%}",
            )
        )
    table(
        f"scoring tokens, {options.threads} thread(s): {ROWS * CONTEXT} tokens of {FEATURES} features",
        ("vocabulary", "texts / (forward + cross_entropy)", "linear_signals / product", "memory / logits"),
        rows,
    )


if __name__ == "__main__":
    main()
