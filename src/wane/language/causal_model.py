"""A causal language model, ready to be asked: tokenizer, last hidden states, and the matrix that makes logits of them.

Needs `transformers` (``pip install 'wane[language]'``), and `peft` for an adapter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CausalModel", "ModelError", "load_model", "wrap_model"]

#: Tokens that a model reads at most, where neither its config nor the user says.
LONGEST = 2048
#: The largest difference, relative to the spread of the logits, between a model's own logits and ours: rounding is far
#: below, any other way of making logits (soft-capping, say) far above.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
ADAPTER = "adapter_config.json"


class ModelError(ValueError):
    """A model that cannot be scored, in one sentence: which, what is wrong, what to do."""


@dataclass(frozen=True, eq=False)
class CausalModel:
    """What scoring needs of a language model.

    Attributes:
        name: how the user called it.
        tokenizer: a fast tokenizer, which knows where in the text a token stands.
        body: token ids (B, T) and mask (B, T) to the last hidden states (B, T, features).
        weight: the output matrix, (vocabulary, features).
        bias: (vocabulary,) or None.
        longest: how many tokens it reads at most.
        fingerprint: of the weights; another model has another one.
        source: what `load_model` was given, so that another process can load it; None for a model in memory.
    """

    name: str
    tokenizer: Any
    body: Callable[[Tensor, Tensor], Tensor]
    weight: Tensor
    bias: Tensor | None
    longest: int
    fingerprint: str
    source: dict[str, Any] | None = None

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.weight.device

    @property
    def begins_with(self) -> list[int]:
        """The token that the tokenizer itself puts before a text; none for many."""
        first = self.tokenizer("a").input_ids[:1]
        begin = self.tokenizer.bos_token_id
        return [begin] if begin is not None and first == [begin] else []

    @property
    def tokenizer_fingerprint(self) -> str:
        """Two files can be compared where this is the same."""
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


def load_model(
    name: str, *, adapter: str | None = None, dtype: str = "float32", device: str = "auto", longest: int | None = None
) -> CausalModel:
    """A model from a folder, or from the hub by its name; a folder that holds an adapter brings its base along.

    Args:
        name: of the model or the adapter.
        adapter: of an adapter to put on the model.
        dtype: float32 or bfloat16.
        device: cpu, cuda, ...; auto takes what there is.
        longest: how many tokens it reads at most; default: what its config says.
    """
    transformers = _needed("transformers")
    if dtype not in ("float32", "bfloat16"):
        raise ModelError(f"dtype is {dtype!r}: choose float32 or bfloat16")
    said = f"{name} with {adapter}" if adapter else name
    base, given = name, adapter
    if adapter is None and (Path(name) / ADAPTER).is_file():
        adapter, base = name, _base_of(Path(name))
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype))
        tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    except Exception as error:  # what is wrong with a folder or a name differs from model to model
        raise ModelError(f"{base} cannot be loaded as a causal language model ({_reason(error)}): give a folder that "
                         "holds one, or the name of one on the hub") from error  # fmt: skip
    if adapter is not None:
        try:
            _needed("peft").PeftModel.from_pretrained(model, adapter)  # changes the model's own layers
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"{adapter} cannot be put on {base} as an adapter ({_reason(error)}): give the folder "
                             "that holds adapter_config.json") from error  # fmt: skip
    source = {"name": name, "adapter": given, "dtype": dtype, "device": device, "longest": longest}
    return replace(wrap_model(model, tokenizer, name=said, device=device, longest=longest), source=source)


def wrap_model(
    model: Any, tokenizer: Any, *, name: str = "<memory>", device: str = "cpu", longest: int | None = None
) -> CausalModel:
    """A model of `transformers` that is in memory already; what could make its numbers wrong is checked."""
    from wane.training.state import pick_device

    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(f"the tokenizer of {name} does not say where in the text a token stands: save the model with "
                         "a fast tokenizer")  # fmt: skip
    output: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(getattr(output, "weight", None), Tensor):
        raise ModelError(f"{name} has no output matrix: give a model with a language-modelling head")
    if broken := next((key for key, value in model.named_parameters() if not bool(value.isfinite().all())), None):
        raise ModelError(f"{name} has weights that are not numbers, in {broken}: train it again, or take an earlier "
                         "checkpoint")  # fmt: skip
    if len(tokenizer) > len(output.weight):
        raise ModelError(f"the tokenizer of {name} has {len(tokenizer)} tokens, the model {len(output.weight)}: take "
                         "the tokenizer that it was trained with")  # fmt: skip
    model = model.to(pick_device(device)).eval()
    output = model.get_output_embeddings()
    inner = model.base_model

    def body(ids: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = inner(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return hidden

    scale = _scale(model, body, output, name)

    def scaled(ids: Tensor, mask: Tensor) -> Tensor:
        return body(ids, mask) * scale

    return CausalModel(
        name, tokenizer, body if scale == 1 else scaled, output.weight.detach(),
        None if output.bias is None else output.bias.detach(), _longest(model, longest, name), _fingerprint(model),
    )  # fmt: skip


@torch.no_grad()
def _scale(model: Any, body: Callable[[Tensor, Tensor], Tensor], output: nn.Linear, name: str) -> float:
    """By what a model multiplies its logits, 1 for most; an error if they are not linear in the hidden state."""
    count = min(16, len(output.weight))
    ids = torch.arange(count, device=output.weight.device)[None]
    mask = torch.ones_like(ids)
    own = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.double()
    ours = nn.functional.linear(body(ids, mask), output.weight, output.bias).double()
    if own.shape != ours.shape:
        raise ModelError(f"{name} makes logits of shape {tuple(own.shape)}, its output matrix {tuple(ours.shape)}: "
                         "such a model cannot be scored")  # fmt: skip
    scale = float((own * ours).sum() / ours.square().sum().clamp(min=1e-30))
    if abs(scale - 1) < TOLERANCE[torch.float32]:
        scale = 1.0
    allowed = TOLERANCE.get(output.weight.dtype, 0.05) * float(own.std()) + 1e-12
    worst = float((own - scale * ours).abs().max())
    if not worst <= allowed or (scale != 1 and output.bias is not None):
        raise ModelError(f"the logits of {name} are not its last hidden states times its output matrix (they differ by "
                         f"{worst:.3g}, as where logits are soft-capped): such a model cannot be scored")  # fmt: skip
    return scale


def _longest(model: Any, asked: int | None, name: str) -> int:
    known = [getattr(model.config, key, None) for key in ("max_position_embeddings", "n_positions", "n_ctx")]
    limit = next((value for value in known if isinstance(value, int) and value > 0), None)
    if asked is None:
        return min(limit or LONGEST, LONGEST)
    if asked < 1 or (limit is not None and asked > limit):
        raise ModelError(f"the context is {asked} tokens: {name} reads 1 to {limit or 'any number of'}")
    return asked


def _fingerprint(model: Any) -> str:
    """Of the config and some numbers of every weight: tells two trained models apart, and is quick for any size."""
    digest = hashlib.sha256(json.dumps(model.config.to_dict(), sort_keys=True, default=str).encode())
    for key, value in model.state_dict().items():
        flat = value.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // 64)].double().cpu()
        digest.update(f"{key}{tuple(value.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]


def _base_of(folder: Path) -> str:
    try:
        base = json.loads((folder / ADAPTER).read_bytes())["base_model_name_or_path"]
    except (ValueError, KeyError) as error:
        raise ModelError(f"{folder / ADAPTER} does not name its base model ({error}): give the base, and the adapter "
                         "with --adapter") from None  # fmt: skip
    return str(base)


def _needed(package: str) -> Any:
    from importlib import import_module

    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ModelError(f"language models need the package {error.name}: pip install 'wane[language]'") from None


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return first[:150].rstrip(". ")
