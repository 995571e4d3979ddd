"""What `gpu.py` measures of vLLM, where it is installed: engines beside the learner, driven without Ray.

A process has one vLLM, so every compilation mode is a part of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch

from gpu_load import SAMPLES, Load, make_learner, random_prompts, say, still, timed
from prorl.cluster.settings import EngineSettings, engine_environment
from prorl.cluster.weights import collect
from prorl.learn.learner import TorchLearner
from prorl.types import Action, Completion, PromptActions, Request, Sampling

NEVER = (0,)  # ends a response, which random weights hardly ever write


def engine(load: Load, device: torch.device, compilation: str) -> dict[str, Any]:
    """Tokens per second, log-probs against the learner's by position, and a turn of sleep, weights and learning."""
    if find_spec("vllm") is None:
        return {"skipped": "vLLM is not installed here"}
    os.environ.update(engine_environment(os.cpu_count() or 1, "cuda" if device.type == "cuda" else "cpu"))
    from prorl.cluster.vllm_engine import VLLMEngine

    learner = make_learner(load, device, dtype=load.dtype)
    seconds: dict[str, float] = {"learner stows": timed(learner.stow)}
    settings = EngineSettings(
        config=learner.policy.config.to_json_string(),
        eos_ids=NEVER,
        context=load.shape.context,
        dtype=load.dtype,  # type: ignore[arg-type]
        max_rows=max(load.batches),
        cache_gib=None if device.type == "cuda" else 0.25,
        transfer="host",
        colocate=device.type == "cuda",
        compilation=compilation,  # type: ignore[arg-type]
    )
    begin = time.perf_counter()
    served = VLLMEngine(settings)
    seconds["engine starts"] = time.perf_counter() - begin
    weights = collect(learner.policy, 0, getattr(torch, load.dtype))
    seconds["weights arrive"] = timed(lambda: served.install(weights))
    rows = [_rate(served, load, batch) for batch in load.batches]
    served.serve(served.version)  # a prompt computed anew, as after sleeping
    before = _sample(served, load, 1, limit=load.response, temperature=0.0)
    long = _sample(served, load, 1, limit=load.long)
    if device.type == "cuda":
        seconds["engine sleeps"] = timed(served.sleep)
    seconds["learner fetches"] = timed(learner.fetch)
    factors = _factors(learner, load, long)
    learner.stow()
    seconds["weights arrive again"] = timed(lambda: served.install(weights))
    after = _sample(served, load, 1, limit=load.response, temperature=0.0)
    found = {"rows": rows, "seconds": seconds, "mean exp |log w| by position": factors}
    gates = {
        "engine and learner agree at every position": all(factor < 1.05 for factor in factors.values()),
        "greedy text is the same after sleeping": [one.tokens for one in before]
        == [one.tokens for one in after],
    }
    say(seconds | factors)
    return {**found, "gates": gates}


def _rate(served: Any, load: Load, batch: int) -> dict[str, Any]:
    _sample(served, load, batch, limit=2)
    seconds = timed(lambda: _sample(served, load, batch, limit=load.response))
    row = {"rows": batch, "tokens/s": batch * load.response / seconds}
    say(row)
    return row


def _sample(
    served: Any, load: Load, rows: int, *, limit: int, temperature: float = 1.0
) -> Sequence[Completion]:
    sampling = Sampling(temperature=temperature, top_p=1.0, limit=limit)
    samples = min(rows, SAMPLES)
    prompts = random_prompts(load, rows // samples)
    for draw, prompt in enumerate(prompts):
        request = Request(draw=draw, prompt=prompt, samples=samples, seed=draw, sampling=sampling)
        served.add([(request, sample) for sample in request.numbers])
    completions: list[Completion] = []
    while len(completions) < len(prompts) * samples:
        completions += served.poll()  # nothing, where some seconds pass without an end
    return sorted(completions, key=lambda one: (one.draw, one.sample))


def _factors(learner: TorchLearner, load: Load, completions: Sequence[Completion]) -> dict[str, float]:
    """Mean exp |log w| of the tokens in each part of the responses, by an update that changes nothing."""
    groups = [
        PromptActions(
            prompt=random_prompts(load, one.draw + 1)[-1],
            actions=(Action(tokens=one.tokens, engine_logps=one.logps, advantage=1.0),),
        )
        for one in completions
    ]
    return dict(learner.begin_update(tuple(groups), still())().mismatch_factors)
