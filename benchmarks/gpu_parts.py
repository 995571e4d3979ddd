"""What `gpu.py` measures, one function per part: each builds its model anew and returns plain data.

Models are random: what they say does not matter, what it costs and whether two ways of computing it agree does.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

from gpu_correctness import by_position, correctness
from gpu_engine import engine
from gpu_load import (
    SAMPLES,
    Load,
    decode_all,
    make_engine,
    make_learner,
    make_model,
    random_batch,
    random_tokens,
    say,
    size_of,
    still,
    timed,
)
from gpu_ray import on_ray
from prorl.cluster.capacity import (
    FLOAT32,
    HALF,
    LOGITS,
    activations,
    computed_weights,
    kv_cache,
    learner_state,
)
from prorl.config.recipe import load_recipe
from prorl.control.events import to_record
from prorl.lab.watch.console import Console
from prorl.learn.parallel import Ranks
from prorl.run.history import read_events
from prorl.run.layout import JOURNAL
from prorl.session import start_run

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
    """Tokens per second and FLOPs utilisation of updates with a reference; what settings bring."""
    short, long = load.packed
    with mesh_of_one(device) as ranks:
        rows = [
            _learn_row(load, short, device, ranks),
            _learn_row(load, long, device, ranks),
            _learn_row(load, long, device, ranks, logits_elements=2**24),
            _learn_row(load, long, device, ranks, compile=True),
            _learn_row(load, short, device, ranks, compile=True, activation_checkpointing=False),
        ]
        if hasattr(F, "linear_cross_entropy"):
            rows.append(_learn_row(load, long, device, ranks, compile=True, fused_head=True))
    return {"peak FLOP/s": _peak_flops(device), "rows": rows}


def machine(load: Load, device: torch.device) -> dict[str, Any]:
    """What the device does at best: products of matrices, copies inside and to the host."""
    width, half = load.shape.hidden_size * 5, torch.bfloat16
    left, right = (torch.randn(width, width, device=device).to(half) for _ in range(2))  # ones are too easy
    moved = torch.ones(2**28 if device.type == "cuda" else 2**20, device=device)
    pinned = torch.empty(moved.shape, pin_memory=device.type == "cuda")
    pageable, gigabytes = torch.empty(moved.shape), moved.nbytes / 1e9
    best = {
        "TFLOP/s of bfloat16 products": 2e-12 * width**3 / _best(lambda: left @ right),
        "GB/s read and written": 2 * gigabytes / _best(lambda: moved.add_(1)),
        "GB/s to pinned host memory": gigabytes / _best(lambda: pinned.copy_(moved)),
        "GB/s to pageable host memory": gigabytes / _best(lambda: pageable.copy_(moved)),
    }
    say(best)
    return best


@contextmanager
def mesh_of_one(device: torch.device) -> Iterator[Ranks]:
    """The one rank of a group, sharded over itself, as a run on Ray has it."""
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}  # no name has to be looked up
    kind = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(kind, init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            yield Ranks.joined(device.type)
        finally:
            dist.destroy_process_group()


def sharded(load: Load, device: torch.device) -> dict[str, Any]:
    """FSDP2 on a mesh of one: a long response, an update, a turn to host memory and back, a checkpoint."""
    batch, hparams = random_batch(load, 4, load.packed[0] // 4), replace(still(), learning_rate=1e-6)
    with tempfile.TemporaryDirectory() as folder, mesh_of_one(device) as ranks:
        model = make_model(load, device)  # with the learner's weights
        long: dict[str, dict[str, float]] = {}
        for name, compiled in (("compiled", True), ("as it is", False)):
            learner = make_learner(load, device, ranks, compile=compiled)
            long[name] = by_position(load, model, learner.modules[0], compile=compiled)
        del model
        stats = learner.begin_update(batch, hparams)()
        prompt = random_tokens(load, load.prompt, 0)
        said = learner.score(prompt[:8], prompt[8:])
        seconds = {"first stow": timed(learner.stow), "first fetch": timed(learner.fetch)}
        seconds |= {"stow": timed(learner.stow), "fetch": timed(learner.fetch)}
        fetched = learner.score(prompt[:8], prompt[8:])
        saved = Path(folder) / "saved"
        saved.mkdir()
        begin = time.perf_counter()
        write = learner.snapshot()
        seconds["copy a checkpoint"] = time.perf_counter() - begin
        seconds["write a checkpoint"] = timed(lambda: write(saved))
        seconds["copy a checkpoint again"] = timed(learner.snapshot)
        learner.begin_update(batch, replace(hparams, learning_rate=1e-3))()
        seconds["read a checkpoint"] = timed(lambda: learner.restore(saved))
        restored = learner.score(prompt[:8], prompt[8:])
    say(seconds)
    gates = {
        "long sequences within 1.05": all(
            one < 1.05 for factors in long.values() for one in factors.values()
        ),
        "an update was applied": stats.updates == 1,
        "the turn changes nothing": fetched == said,
        "the checkpoint gives back the policy": restored == said,
    }
    return {"seconds": seconds, "long, mean exp |difference| by position": long, "gates": gates}


def nano(load: Load, device: torch.device) -> dict[str, Any]:
    """A short nano run from the base on, without validations; and one that is killed half-way and resumed."""
    measureless = ("validation.every=0", "evaluation.per_domain=0", "evaluation.ood_per_domain=0")
    settings = [f"device={device}", "reset.stalled_validations=0", "save.every=1", *measureless, *load.nano]
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        state = start_run(load_recipe("nano", settings), whole, Console())
        steps = steps_of(whole)
        prorl = [sys.executable, "-m", "prorl"]
        train = [*prorl, "train", "nano", *settings, "--no-supervise", "--run", str(killed)]
        with subprocess.Popen(train) as process:
            while len(steps_of(killed)) <= state.step // 2 and process.poll() is None:
                time.sleep(0.1)
            process.kill()
        subprocess.run([*prorl, "resume", killed], check=True)
        gone_on = steps_of(killed)
    seconds = [step["seconds"]["total"] for step in steps]
    scores, scores_gone_on = ([step["rollout_stats"]["score"] for step in each] for each in (steps, gone_on))
    return {
        "steps": len(steps),
        "updates": sum(step["update"]["updates"] for step in steps),
        "seconds per step, median": sorted(seconds)[len(seconds) // 2],
        "seconds": [round(second, 3) for second in seconds],
        "mismatch of engine and learner, nats": max(step["update"]["mismatch"] for step in steps),
        "score": scores,
        "score where it was killed": scores_gone_on,
        "the same scores after all": scores == scores_gone_on,
        "gates": {"killed by force it goes on to the end": gone_on[-1]["step"] == state.step},
    }


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The steps in a run's journal; of one that was done again the last."""
    events = map(to_record, read_events(run)) if (run / JOURNAL).exists() else ()
    return list({event["step"]: event for event in events if event["kind"] == "stepped"}.values())


PARTS: Mapping[str, Callable[[Load, torch.device], dict[str, Any]]] = {
    "machine": machine,
    "correctness": correctness,
    "sharded": sharded,
    "learn": learn,
    **{f"engine_{mode}": partial(engine, compilation=mode) for mode in ("safe", "full", "off")},
    "ray": on_ray,
    "decode": decode,
    "nano": nano,
}
"""In the order in which they are worth most, should the time end early."""


def _decode_row(model: PreTrainedModel, load: Load, batch: int, device: torch.device) -> dict[str, Any]:
    engine = make_engine(model, batch)
    decode_all(engine, load, batch, limit=2)
    _reset_peak(device)
    seconds = timed(lambda: decode_all(engine, load, batch, limit=load.response))
    half = model.dtype == torch.bfloat16
    size = size_of(model, load.shape)
    positions = batch // SAMPLES * load.prompt + batch * load.response
    estimate = 2 * (HALF if half else FLOAT32) * size.parameters + kv_cache(size, positions, half=half)
    row = {
        "dtype": str(model.dtype).removeprefix("torch."),
        "rows": batch,
        "tokens/s": batch * load.response / seconds,
        "ms per token of a row": 1e3 * seconds / load.response,
        **_memory(_peak(device), estimate),
    }
    say(row)
    return row


def _learn_row(load: Load, packed: int, device: torch.device, ranks: Ranks, **changes: Any) -> dict[str, Any]:
    gc.collect()  # the last row's learner, which lies in cycles
    learner = make_learner(load, device, ranks, micro_batch_tokens=packed, **changes)
    length, sequences = packed // 4, 4 * MICRO_BATCHES
    batch, hparams = random_batch(load, sequences, length), still()
    learner.begin_update(batch, hparams)()
    _reset_peak(device)
    seconds = min(timed(lambda: learner.begin_update(batch, hparams)()) for _ in range(load.repeats))
    memory, shares = _peak(device), _time_by_kernel(lambda: learner.begin_update(batch, hparams)(), device)
    size, peak = size_of(learner.policy, load.shape), _peak_flops(device)
    positions = sequences * (length - 1)
    forward = positions * 2 * (size.parameters + size.layers * size.hidden_size * length)  # causal attention
    state, half = learner_state(size, reference=True), load.dtype == "bfloat16"
    checkpointed = changes.get("activation_checkpointing", True)
    kept = activations(size, packed, half=half, checkpointed=checkpointed)
    estimate = sum(state.values()) + computed_weights(size, half=half, sharded=False) + kept + LOGITS
    row = {
        "packed tokens": packed,
        "sequence": length,
        **changes,
        "tokens/s": positions / seconds,
        # a forward and a backward pass; with old log-probs and the reference's; and with what is computed again
        "model FLOPs utilisation": 3 * forward / seconds / peak if peak else None,
        "needed FLOPs utilisation": 5 * forward / seconds / peak if peak else None,
        "hardware FLOPs utilisation": (5 + checkpointed) * forward / seconds / peak if peak else None,
        **_memory(memory, estimate),
        **shares,
    }
    say(row)
    return row


# -- pieces


def _best(work: Callable[[], Any]) -> float:
    """The shortest time of several, in seconds."""
    return min(timed(work) for _ in range(5))


def _peak_flops(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for known, flops in PEAK_FLOPS.items() if known in name), None)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def _time_by_kernel(work: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Shares of the GPU's time in products of matrices, in attention and in all else; and of the time it waits."""
    if device.type != "cuda":
        return {}
    with profile(activities=[ProfilerActivity.CUDA]) as told:
        seconds = timed(work)
    times = {"products": 0.0, "attention": 0.0, "all else": 0.0}
    for event in told.key_averages():
        name = event.key.lower()
        product = any(part in name for part in ("nvjet", "gemm", "cutlass::kernel"))
        times["attention" if "flash" in name else "products" if product else "all else"] += (
            1e-6 * event.self_device_time_total
        )
    busy = sum(times.values())
    return {name: time / busy for name, time in times.items()} | {"waits": max(0.0, 1 - busy / seconds)}


def _memory(peak: int | None, estimate: float) -> dict[str, float | None]:
    return {
        "peak GiB": peak / GIB if peak else None,
        "estimated GiB": estimate / GIB,
        "peak to estimate": peak / estimate if peak else None,
    }
