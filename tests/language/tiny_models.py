"""Small causal models with tokenizers of three kinds, trained on a few sentences: made in a second, no download."""

import json

import torch

SENTENCES = [
    "In the beginning the model knew 1,000 words, and it didn't forget them.",
    "for item in items:\n    total_sum += item.value  # add 3.5\n",
    "Über die Brücke gehen 12 Schafe; das ist well-known — isn't it?",
    "A naïve café costs 4€ 😀 日本語のテキスト.",
] * 5


def byte_level(size=400):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=made)


def sentence_pieces(size=300):
    """As sentencepiece marks words, and with a first token of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    special = ["<s>", "<unk>"]
    made.train_from_iterator(
        SENTENCES, trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>")
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", unk_token="<unk>")


def word_pieces(size=300):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[UNK]"]))
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


TOKENIZERS = {"byte-level": byte_level, "sentencepiece": sentence_pieces, "wordpiece": word_pieces}


def gpt2(tokenizer, *, seed=0, reads=32):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=reads,
        n_embd=24,
        n_layer=2,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).eval()


def moved(model, *, by=0.05, seed=1):
    """A model a little away from another."""
    import copy

    g = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=g))
    return other


def save(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_texts(folder):
    """Three files: JSON lines with domains, a text, and program code."""
    folder.mkdir()
    lines = [{"text": s, "domain": ("mixed", "prose")[i % 2], "year": 1900 + i} for i, s in enumerate(SENTENCES[:4])]
    (folder / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (folder / "story.txt").write_text(" ".join(SENTENCES), encoding="utf-8")
    (folder / "python.md").write_text(SENTENCES[1] * 4, encoding="utf-8")
    return folder
