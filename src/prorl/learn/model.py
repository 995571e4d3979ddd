"""Loads models and tokenizers: from a transformers directory, the hub's local cache, or the hub.

Invariants: what is returned is deterministic (dropout is off for good, not only in evaluation mode) and complete
(no weight was left at a random value because the checkpoint lacked it). Whatever is wrong with a checkpoint is
one sentence in a `ModelError`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, errors
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from prorl.envs.errors import ProrlError

_HUB_TIMEOUT = 10.0  # seconds


class ModelError(ProrlError):
    """A model or tokenizer cannot be used; the message says why and what to do."""


def load_model(source: str | Path, *, dtype: torch.dtype, device: torch.device | str) -> PreTrainedModel:
    """The causal language model of a transformers directory or hub id, in evaluation mode, on `device`.

    A hub id is looked up in the local cache first and downloaded only if it is not there. Raises ModelError: no such
    directory, not a checkpoint, hub unreachable, no causal head, or missing weights.
    """
    config = _load(AutoConfig.from_pretrained, source, "model")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"{source} ({config.model_type}) has no causal language-model head; give a decoder-only model"
        )
    text = config.get_text_config()
    if getattr(text, "num_attention_heads", None) is None:
        raise ModelError(
            f"{source} ({config.model_type}) has no attention heads; give a transformer with causal attention"
        )
    for name, value in vars(text).items():  # no dropout, in training mode either
        if isinstance(value, float) and ("dropout" in name or name.endswith("pdrop")):
            setattr(text, name, 0.0)
    read = partial(AutoModelForCausalLM.from_pretrained, config=config, dtype=dtype, output_loading_info=True)
    model, report = _load(read, source, "model")
    absent = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if absent:
        raise ModelError(
            f"{source} lacks {len(absent)} weights of a causal language model (first: {absent[0]}); "
            "give a checkpoint saved with its language-model head"
        )
    return model.to(device).eval()


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a transformers directory or hub id; ModelError if there is none, or it ends no sequence."""
    tokenizer: PreTrainedTokenizerBase = _load(AutoTokenizer.from_pretrained, source, "tokenizer")
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {source} has no end-of-sequence token, so no response would ever end; "
            "set eos_token in its tokenizer_config.json"
        )
    return tokenizer


def eos_ids(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that ends a response: the tokenizer's own first, then those that only the generation config lists."""
    listed = generation.eos_token_id if generation is not None else None
    extra = listed if isinstance(listed, list) else [] if listed is None else [listed]
    return tuple(dict.fromkeys([tokenizer.eos_token_id, *extra]))


def pad_id(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> int:
    """An id to fill rows with; nothing attends to it, but it has an embedding, which an added token may lack."""
    rows = model.get_input_embeddings().weight.shape[0]
    known = (
        one for one in (tokenizer.pad_token_id, tokenizer.eos_token_id) if one is not None and one < rows
    )
    return next(known, 0)


def context_limit(model: PreTrainedModel) -> int:
    """How many tokens, prompt and response together, the model can attend over; ModelError if it does not say."""
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is None:
        raise ModelError(
            f"a {model.config.model_type} model does not state its context length; "
            "set max_position_embeddings in its config.json"
        )
    return limit


def widths(config: PretrainedConfig) -> dict[str, int]:
    """What GPUs that share a layer must divide of a text model, as `config/checks.py: parts_problem` takes it."""
    heads = config.num_attention_heads
    return {
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "intermediate_size": getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        "vocab_size": config.vocab_size,
    }


def _load(read: Callable[..., Any], source: str | Path, what: str) -> Any:
    """Read from a directory, else from the hub's cache, else from the hub; ModelError if none works."""
    name = str(source)
    # Hub ids are `name` or `owner/name`; everything else can only be a directory.
    if isinstance(source, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        name = str(Path(source).expanduser())
        if not Path(name).is_dir():
            raise ModelError(
                f"there is no directory {name}; give a transformers checkpoint directory or a hub id"
            )
    local = Path(name).is_dir()
    if local and what == "model" and not (Path(name) / "config.json").is_file():
        raise ModelError(f"{name} is no transformers checkpoint: it holds no config.json")
    try:
        return read(name, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # on broken files transformers raises whatever its code runs into
        if local:
            raise _explained(error, name, what) from error
    _require_on_hub(name)
    try:
        return read(name, trust_remote_code=False)
    except Exception as error:
        raise _explained(error, name, what) from error


def _require_on_hub(name: str) -> None:
    """Ask the hub once: the loader itself would retry a dead connection for half a minute per file."""
    try:
        HfApi().model_info(name, timeout=_HUB_TIMEOUT)
    except errors.GatedRepoError as error:
        raise ModelError(f"{name} is gated: accept its terms on the hub and run `hf auth login`") from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ModelError(
            f"{name} is neither a directory here nor a model on the hub that you may read"
        ) from error
    except Exception as error:  # what its HTTP library raises changes between versions of the hub client
        offline = isinstance(error, errors.OfflineModeIsEnabled)
        reason = "offline mode is on" if offline else "the hub cannot be reached"
        raise ModelError(
            f"{name} is not in the local cache and {reason}; on a connected machine run "
            f"`hf download {name} --local-dir DIR`, copy DIR here, and give its path as the model"
        ) from error


def no_tokenizer(source: str | Path) -> ModelError:
    """A folder without the files of a tokenizer."""
    return ModelError(
        f"{source} holds no tokenizer that can be read; copy its tokenizer.json next to the weights"
    )


def _explained(error: Exception, name: str, what: str) -> ModelError:
    text = str(error).strip()
    if "backend tokenizer" in text:
        return no_tokenizer(name)
    first_line = text.partition("\n")[0] or type(error).__name__
    return ModelError(f"cannot load the {what} of {name}: {first_line}")


def choose_attention() -> None:
    """Leave attention on a GPU to torch's flash kernels.

    cuDNN's, which torch prefers on an H100, are planned anew for every shape, and each packed pass has another one.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
