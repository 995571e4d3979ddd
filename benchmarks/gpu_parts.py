"""What `gpu.py` measures, one function per part: each builds its model anew and returns plain data.

Models are random: what they say does not matter, what it costs and whether two ways of computing it agree does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from gpu_correctness import correctness
from gpu_load import SAMPLES, Load, decode_all, make_engine, make_model, random_tokens, size_of
from prorl.build import learner_settings
from prorl.cluster.capacity import FLOAT32, HALF, activations, computed_weights, kv_cache, learner_state
from prorl.config.recipe import load_recipe
from prorl.control.plan import hparams_at, make_plan
from prorl.lab.watch.console import Console
from prorl.learn.learner import TorchLearner
from prorl.run.journal import read_journal
from prorl.run.layout import JOURNAL
from prorl.session import start_run
from prorl.types import Action, Batch, PromptActions, log_probs, token_ids

MICRO_BATCHES = 4  # of one timed update
# bfloat16 without sparsity, from NVIDIA's data sheets; matched in this order
PEAK_FLOPS = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
GIB = 2**30


def decode(load: Load, device: torch.device) -> dict[str, Any]:
    """Tokens per second of the native decoder, every response as long as the others."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        model = make_model(load, device).to(dtype)
        rows += [_decode_row(model, load, batch, device) for batch in load.batches]
    return {"prompt": load.prompt, "response": load.response, "rows": rows}


def learn(load: Load, device: torch.device) -> dict[str, Any]:
    """Tokens per second and FLOPs utilisation of updates in bfloat16 with checkpointing and a reference."""
    rows = [_learn_row(load, packed, device) for packed in load.packed]
    return {"peak FLOP/s": _peak_flops(device), "rows": rows}


def nano(load: Load, device: torch.device) -> dict[str, Any]:
    """A short nano run from the base on, without validations."""
    measureless = ("validation.every=0", "evaluation.per_domain=0", "evaluation.ood_per_domain=0")
    config = load_recipe(
        "nano", [f"device={device}", "reset.stalled_validations=0", *measureless, *load.nano]
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "nano"
        start_run(config, run, Console())
        steps = [event for event in read_journal(run / JOURNAL) if event["kind"] == "stepped"]
    seconds = [step["seconds"]["total"] for step in steps]
    return {
        "steps": len(steps),
        "updates": sum(step["update"]["updates"] for step in steps),
        "seconds per step, median": sorted(seconds)[len(seconds) // 2],
        "seconds": [round(second, 3) for second in seconds],
        "mismatch of engine and learner, nats": max(step["update"]["mismatch"] for step in steps),
        "score": [step["rollout_stats"]["score"] for step in steps],
    }


PARTS: Mapping[str, Callable[[Load, torch.device], dict[str, Any]]] = {
    "correctness": correctness,
    "decode": decode,
    "learn": learn,
    "nano": nano,
}


def _decode_row(model: PreTrainedModel, load: Load, batch: int, device: torch.device) -> dict[str, Any]:
    engine = make_engine(model, batch)
    decode_all(engine, load, batch, limit=2)
    _reset_peak(device)
    seconds = _timed(lambda: decode_all(engine, load, batch, limit=load.response))
    half = model.dtype == torch.bfloat16
    size = size_of(model, load.shape)
    positions = batch // SAMPLES * load.prompt + batch * load.response
    estimate = 2 * (HALF if half else FLOAT32) * size.parameters + kv_cache(size, positions, half=half)
    row = {
        "dtype": str(model.dtype).removeprefix("torch."),
        "rows": batch,
        "tokens/s": batch * load.response / seconds,
        "ms per token of a row": 1e3 * seconds / load.response,
        **_memory(device, estimate),
    }
    _say(row)
    return row


def _learn_row(load: Load, packed: int, device: torch.device) -> dict[str, Any]:
    model = make_model(load, device)
    computed = {"micro_batch_tokens": packed, "activation_checkpointing": True, "dtype": "bfloat16"}
    config = load_recipe("prorl_v2", [f"learner.{key}={value}" for key, value in computed.items()])
    learner = TorchLearner(model, learner_settings(config), with_reference=True, pad_id=0)
    length, sequences = packed // 4, 4 * MICRO_BATCHES
    batch = _batch(load, sequences, length)
    hparams = replace(hparams_at(make_plan(config), 0), learning_rate=1e-6, updates_per_step=1)
    learner.begin_update(batch, hparams)()
    _reset_peak(device)
    seconds = min(_timed(lambda: learner.begin_update(batch, hparams)()) for _ in range(load.repeats))
    size, peak = size_of(model, load.shape), _peak_flops(device)
    positions = sequences * (length - 1)
    forward = positions * 2 * (size.parameters + size.layers * size.hidden_size * length)  # causal attention
    state = learner_state(size, reference=True)
    kept = activations(size, packed, half=True, checkpointed=True)
    row = {
        "packed tokens": packed,
        "sequence": length,
        "tokens/s": positions / seconds,
        # a forward and a backward pass; with recomputation and the reference, which are work too
        "model FLOPs utilisation": 3 * forward / seconds / peak if peak else None,
        "hardware FLOPs utilisation": 5 * forward / seconds / peak if peak else None,
        **_memory(device, sum(state.values()) + computed_weights(size, half=True, sharded=False) + kept),
    }
    _say(row)
    return row


# -- pieces


def _batch(load: Load, sequences: int, length: int) -> Batch:
    """One response per prompt, `length` tokens in all: nothing is shared, nothing padded."""
    prompt = min(load.prompt, length // 2)
    groups = []
    for seed in range(sequences):
        tokens = random_tokens(load, length, seed)
        response = tokens[prompt:]
        logps = log_probs([-6.0] * len(response))
        action = Action(tokens=token_ids(response), engine_logps=logps, advantage=(-1.0) ** seed)
        groups.append(PromptActions(prompt=tokens[:prompt], actions=(action,)))
    return Batch(groups=tuple(groups))


def _peak_flops(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for known, flops in PEAK_FLOPS.items() if known in name), None)


def _timed(work: Callable[[], Any]) -> float:
    """Seconds; what is timed here ends with a copy to the host, which waits for the device."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def _memory(device: torch.device, estimate: float) -> dict[str, float | None]:
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return {
        "peak GiB": peak / GIB if peak else None,
        "estimated GiB": estimate / GIB,
        "peak to estimate": peak / estimate if peak else None,
    }


def _say(row: Mapping[str, Any]) -> None:
    parts = (
        f"{name} {value:,.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
    )
    print("  " + ", ".join(part for part in parts if not part.endswith("None")), flush=True)
