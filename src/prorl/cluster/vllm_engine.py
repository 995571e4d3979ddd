"""vLLM as an engine in one process: the machine behind an engine actor.

Invariants: a response depends on its own (seed, sample) and, float rounding aside, on nothing beside it; log-probs
are those of the distribution that was sampled from, which `top_p` below 1 truncates and so only studies ask for;
nothing is served before the first weights were installed, nor while others are in flight.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams, TokensPrompt
from vllm.config import WeightTransferConfig

from prorl.cluster.fate import OneFate
from prorl.cluster.placement import ALONE, SHARED
from prorl.cluster.settings import EngineSettings, check_request
from prorl.cluster.weights import Weights, unpack
from prorl.envs.files import write_atomic
from prorl.envs.seeds import derive
from prorl.local.engine import DivergedError
from prorl.types import Completion, Finish, Request, log_probs, token_ids

PROBE = "probe"
PASS_TOKENS = 8192  # of one forward pass on a CPU, at least


class VLLMEngine:
    """`ports.Engine` on vLLM without its server, and with processes of its own only under tensor parallelism."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._engine = LLMEngine.from_engine_args(_arguments(settings))
        self._version = -1
        self._asked: dict[str, tuple[int, int]] = {}  # request id → draw, sample

    @property
    def version(self) -> int:
        """Version of the weights that serve requests now; -1 before the first were installed."""
        return self._version

    def install(self, weights: Weights) -> None:
        """Serve other weights, and forget what was computed with the old ones; an engine that sleeps wakes.

        Raises:
            SyncError: the weights were damaged on their way.
            RuntimeError: requests are in flight.
        """
        self.withdraw()
        asleep = self._engine.is_sleeping()
        if asleep:
            self._engine.wake_up(tags=["weights"])
        self._engine.collective_rpc("install_weights", args=(list(unpack(weights)),))
        if asleep:
            self._engine.wake_up(tags=["kv_cache"])
        self.serve(weights.version)

    def withdraw(self) -> None:
        """Serve nothing until there are other weights.

        Raises:
            RuntimeError: requests are in flight.
        """
        if self._asked:
            raise RuntimeError(
                "weights cannot change while requests are in flight: poll to the end or cancel"
            )
        self._version = -1

    def transfer(self, step: str, *arguments: Any) -> list[Any]:
        """One step of vLLM's weight transfer, a method of its workers; only while nothing is served.

        Returns what each of them answered.
        """
        return list(self._engine.collective_rpc(step, args=arguments))

    def serve(self, version: int) -> None:
        """Serve the weights that the workers hold now, and forget what was computed with others."""
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache, which holds keys and values of the old weights")
        self._version = version

    def sleep(self) -> None:
        """Give back the memory of weights and cache, and forget both; the next weights wake it.

        Raises:
            RuntimeError: requests are in flight, which vLLM would drop.
        """
        if self._asked:
            raise RuntimeError(
                "an engine cannot sleep while requests are in flight: poll to the end or cancel"
            )
        self._version = -1
        self._engine.sleep(level=2)

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples."""
        for sample in range(request.samples):
            self.add(request, sample)

    def add(self, request: Request, sample: int) -> None:
        """Queue one sample of a request.

        Raises:
            RequestError: as `check_request`.
            RuntimeError: no weights were installed yet.
        """
        if self._version < 0:
            raise RuntimeError("this engine has no weights yet: install some first")
        check_request(request, self._settings)
        sampling = request.sampling
        name = f"{request.draw}/{sample}"
        params = SamplingParams(
            temperature=sampling.temperature,  # 0: the most probable token
            top_p=sampling.top_p,
            max_tokens=sampling.limit,
            # Of its own accord vLLM would seed sample k of a request with seed + k.
            seed=derive(request.seed, sample),
            stop_token_ids=list(self._settings.eos_ids),
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            detokenize=False,
        )
        self._engine.add_request(name, _prompt(request.prompt), params)
        self._asked[name] = (request.draw, sample)

    def poll(self) -> list[Completion]:
        """Decode until at least one response has finished; an empty list means that nothing is in flight.

        Raises:
            DivergedError: the policy computes nothing that could be sampled from.
        """
        finished: list[RequestOutput] = []
        while self._asked and not finished:
            finished = [output for output in self._engine.step() if output.finished]
        done = [self._completion(output) for output in finished]
        return sorted(done, key=lambda completion: (completion.draw, completion.sample))

    def cancel(self) -> None:
        """Drop everything in flight."""
        self._engine.abort_request(list(self._asked))
        while self._engine.has_unfinished_requests():
            self._engine.step()
        self._asked.clear()

    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-probs of `tokens` after `prompt` at temperature 1; only while nothing is in flight."""
        sequence = (*prompt, *tokens)
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        self._engine.add_request(PROBE, _prompt(sequence), params)
        outputs: list[RequestOutput] = []
        while self._engine.has_unfinished_requests():
            outputs += self._engine.step()
        scored = outputs[-1].prompt_logprobs
        return [scored[at][sequence[at]].logprob for at in range(len(prompt), len(sequence))]

    def _completion(self, output: RequestOutput) -> Completion:
        draw, sample = self._asked.pop(output.request_id)
        (response,) = output.outputs
        logps = log_probs(response.logprobs.logprobs)
        if not math.isfinite(sum(logps)):
            raise DivergedError(
                "the model's logits are not finite: go back to a checkpoint from before training diverged, "
                "and lower optimizer.lr"
            )
        return Completion(
            draw=draw,
            sample=sample,
            tokens=token_ids(response.token_ids),
            logps=logps,
            finish=_finish(response.finish_reason),
            policy_version=self._version,
        )


def _arguments(settings: EngineSettings) -> EngineArgs:
    gpu = torch.cuda.is_available()
    return EngineArgs(
        model=str(without_weights(settings)),
        load_format="dummy",  # the learner's weights come with the first sync
        skip_tokenizer_init=True,
        dtype=settings.dtype,
        max_model_len=settings.context,
        max_num_seqs=settings.max_rows,
        kv_cache_memory_bytes=settings.cache_bytes,
        gpu_memory_utilization=SHARED if settings.colocated else ALONE,
        enable_sleep_mode=gpu and settings.colocated,
        tensor_parallel_size=settings.tensor_parallel,
        distributed_executor_backend=OneFate if settings.tensor_parallel > 1 else None,
        logprobs_mode="processed_logprobs",  # after the temperature
        worker_extension_cls="prorl.cluster.worker.WeightsExtension",
        weight_transfer_config=None
        if settings.transfer == "host"
        else WeightTransferConfig(backend=settings.transfer),
        enforce_eager=not gpu,  # on a CPU graphs cost minutes and gain little
        # Where a prompt is cut in two, a seeded request takes back the first half's random number, which the
        # generators of a CPU cannot.
        enable_chunked_prefill=gpu,
        max_num_batched_tokens=None if gpu else max(PASS_TOKENS, settings.context, settings.max_rows),
        disable_log_stats=True,
    )


def without_weights(settings: EngineSettings) -> Path:
    """A transformers directory on this machine of all that vLLM reads of a model besides its weights.

    Equal settings have the same one: vLLM keeps what it compiles under its name, for the next start.
    """
    files = {
        "config.json": settings.config,
        "generation_config.json": json.dumps({"eos_token_id": list(settings.eos_ids)}),
    }
    digest = blake2b("\n".join(files.values()).encode(), digest_size=8).hexdigest()
    folder = Path(gettempdir()) / f"prorl-{os.getuid()}-model-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, text in files.items():
        write_atomic(folder / name, text)
    return folder


def _finish(reason: str | None) -> Finish:
    match reason:
        case "stop" | "length":
            return reason
        case _:
            raise RuntimeError(f"vLLM ended a response for a reason that is none of the policy's: {reason}")


def _prompt(tokens: Sequence[int]) -> TokensPrompt:
    return TokensPrompt(prompt_token_ids=list(tokens))
