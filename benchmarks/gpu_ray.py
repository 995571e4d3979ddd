"""What `gpu.py` measures of a learner and an engine that share a GPU on Ray, where vLLM and Ray are installed."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from packaging.version import Version

from gpu_load import SAMPLES, Load, decode_all, make_model, random_batch, say, still, timed
from prorl.build import build_session
from prorl.config.recipe import check
from prorl.learn.base_model import train_tokenizer
from prorl.types import Engine

SYNCS = 3  # the first waits for the engine to start


def on_ray(load: Load, device: torch.device) -> dict[str, Any]:
    """Seconds of syncs and updates, weights going through host memory and inside the GPU; an engine is killed."""
    if not (find_spec("vllm") and find_spec("ray")):
        return {"skipped": "vLLM and Ray are not installed here"}
    from prorl.cluster.settings import DIRECT_SINCE
    from prorl.cluster.survey import installed

    direct = device.type == "cuda" and Version(installed()["vllm"]) >= Version(DIRECT_SINCE)
    ways = ["host", "ipc"] if direct else ["host"]
    with tempfile.TemporaryDirectory() as folder:
        make_model(load, torch.device("cpu")).save_pretrained(folder)
        train_tokenizer(["Say 1 + 2 between the tags."], 300).save_pretrained(folder)
        found = {way: _turns(load, device, folder, way) for way in ways}
    said = [one.pop("greedy text") for one in found.values()]
    gates = {
        "no engine was lost before one was killed": not any(one["incidents"] for one in found.values()),
        "the same greedy text whatever the way": all(text == said[0] for text in said),
        "what replaces a killed engine writes the same": all(one.pop("replaced") for one in found.values()),
    }
    return {**found, "gates": gates}


def _turns(load: Load, device: torch.device, folder: str, way: str) -> dict[str, Any]:
    settings = {
        "name": "benchmark",
        "model": {"path": folder},
        "tasks": {"arithmetic": {}},
        "backend": "ray",
        "device": device.type,
        "threads": 1,
        "learner": {
            "dtype": load.dtype,
            "old_logprobs": "learner",
            "micro_batch_tokens": load.packed[-1],
            "activation_checkpointing": True,
        },
        "cluster": {"colocate": True, "transfer": way, "cache_gib": None if device.type == "cuda" else 0.25},
        "sampling": {"response_limit": load.response},
    }
    backend = build_session(check(settings, "benchmark"), folder, with_reference=True).backend
    batch, hparams = random_batch(load, 4, load.packed[0] // 4), replace(still(), learning_rate=1e-6)
    rows, texts = [], []
    try:
        for number in range(SYNCS):
            seconds = {"a sync": timed(partial(backend.sync, number))}
            texts.append(_greedy(load, backend.engine))
            seconds["an update"] = timed(lambda: backend.learner.begin_update(batch, hparams)())
            rows.append({"way": way, **seconds})
            say(rows[-1])
        backend.sync(SYNCS)
        texts.append(_greedy(load, backend.engine))
        incidents = backend.incidents()
        _kill_engine()
        replaced = _greedy(load, backend.engine) == texts[-1] and len(backend.incidents()) == 1
    finally:
        backend.close()
    return {"rows": rows, "incidents": incidents, "replaced": replaced, "greedy text": texts[0]}


def _greedy(load: Load, engine: Engine) -> list[tuple[int, ...]]:
    """What it writes to one prompt, as often as it is asked."""
    completions = decode_all(engine, load, SAMPLES, limit=load.response, temperature=0.0)
    return [tuple(one.tokens) for one in sorted(completions, key=lambda one: one.sample)]


def _kill_engine() -> None:
    import psutil  # comes with Ray

    below = psutil.Process().children(recursive=True)
    (engine,) = (one for one in below if "ray::EngineActor" in " ".join(one.cmdline()))
    engine.kill()
