"""vLLM inside an engine's process, and what of ours runs inside vLLM.

Invariants: a response depends on its own (seed, sample) and, float rounding aside, on nothing else in the batch;
log-probs are those of the distribution that was sampled from, which `top_p` below 1 truncates and so only evaluations
ask for; nothing is served before the first weights were installed, nor while others are on their way.
"""

from __future__ import annotations

import json
import math
import os
import time
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import Any

import torch
from torch import Tensor
from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams, TokensPrompt
from vllm.config import CompilationConfig, WeightTransferConfig, set_current_vllm_config
from vllm.sampling_params import RequestOutputKind
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from prorl.cluster.capacity import ALONE, GIB, SHARED
from prorl.cluster.settings import EngineSettings
from prorl.cluster.weights import Weights, unpack, word_sum
from prorl.envs.files import write_atomic
from prorl.envs.seeds import derive
from prorl.local.engine import require_finite
from prorl.types import Completion, Finish, Request, log_probs, token_ids

PROBE = "probe"
# CUDA graphs without inductor, and torch's own rotary embedding. With vLLM's defaults others found wrong log-probs
# of Qwen2: by inductor now and then, by its embedding far from the start. Source: NeMo-RL issues 998, 1014, 2981.
SAFE: Mapping[str, Any] = {"backend": "eager", "custom_ops": ["all", "-rotary_embedding"]}
PASS_TOKENS = 8192  # of one forward pass, at least
LOST_WORKER = 70  # exit status
PROGRESS_SECONDS = 5.0  # of decoding, after which a call returns though no response has finished
# An engine decodes nothing from its answer to the next call. So it waits for more beside the first response, so many
# times as long as that took, and so many seconds at most.
TOGETHER, LONGEST = 20.0, 0.5


class FailTogether(MultiprocExecutor):  # type: ignore[misc]  # Any, where vLLM is not installed
    """Worker processes of an engine whose death ends the engine's own, so that for Ray all are one actor.

    vLLM would report it as an error of the next call. Ray ends what a dead actor leaves behind, a process group.
    """

    def start_worker_monitor(self, inline: bool = False) -> None:
        """Watch the workers, in place of vLLM's own watch."""
        Thread(target=self._end_with_the_first, daemon=True).start()

    def _end_with_the_first(self) -> None:
        wait([worker.proc.sentinel for worker in self.workers])
        if not getattr(self, "shutting_down", False):
            os._exit(LOST_WORKER)


class WeightsExtension:
    """How vLLM's workers take new weights; mixed into their class by the option `worker_extension_cls`."""

    vllm_config: Any
    model_runner: Any
    weight_transfer_engine: Any
    update_weights: Any

    def install_weights(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Serve these weights; `load_weights` of the model would not repack them for the kernels again."""
        with set_current_vllm_config(self.vllm_config):  # as vLLM's own reload does since 0.32
            self.model_runner.reload_weights(weights_iterator=iter(named))

    def receive_weights(self, update_info: Mapping[str, Any]) -> dict[str, int]:
        """vLLM's `update_weights`; returns the `word_sum` of every weight as the model was given it."""
        model = self.weight_transfer_engine.model
        load, sums = model.load_weights, {}

        def summed(named: Sequence[tuple[str, Tensor]]) -> Any:
            named = list(named)
            sums.update({name: word_sum(weight) for name, weight in named})
            return load(named)

        model.load_weights = summed
        try:
            self.update_weights(update_info)
        finally:
            del model.load_weights  # the method of its class is used again
        return {name: int(total) for name, total in sums.items()}


class VLLMEngine:
    """vLLM without its server, in this process; under tensor parallelism with a worker process per GPU."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._engine = LLMEngine.from_engine_args(_arguments(settings))
        self.version = -1  # of the weights that are served; -1: none
        self._asked: dict[str, tuple[int, int]] = {}  # request id → draw, sample
        self._answered = math.inf  # when the last `poll` since there is new work returned

    def install(self, weights: Weights) -> None:
        """Serve other weights, and drop what was computed with the old ones; an engine that sleeps wakes.

        Raises SyncError where the weights were damaged on their way, RuntimeError with requests in flight.
        """
        self.prepare()
        self._engine.collective_rpc("install_weights", args=(list(unpack(weights)),))
        self.serve(weights.version)

    def prepare(self) -> None:
        """Have room for other weights, and serve nothing until they are there; raises as `withdraw`."""
        self.withdraw()
        if self._engine.is_sleeping():
            self._engine.wake_up(tags=["weights"])

    def withdraw(self) -> None:
        """Serve nothing until there are other weights. Raises RuntimeError: requests are in flight."""
        if self._asked:
            raise RuntimeError(
                "weights cannot change while requests are in flight: poll to the end or cancel"
            )
        self.version = -1

    def transfer(self, step: str, *arguments: Any) -> list[Any]:
        """One step of vLLM's weight transfer, a method of its workers: what each of them answered."""
        return list(self._engine.collective_rpc(step, args=arguments))

    def serve(self, version: int) -> None:
        """Serve the weights that the workers hold now, and forget what was computed with others."""
        if self._engine.is_sleeping():
            self._engine.wake_up(tags=["kv_cache"])
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache, which holds keys and values of the old weights")
        self.version = version

    def sleep(self) -> None:
        """Free the memory of weights and cache and drop both; the next weights wake it; raises as `withdraw`."""
        self.withdraw()
        self._engine.sleep(level=2)

    def add(self, work: Sequence[tuple[Request, int]]) -> None:
        """Queue samples of requests, which fit into the context. Raises RuntimeError: there are no weights yet."""
        if self.version < 0:
            raise RuntimeError("this engine has no weights yet: install some first")
        self._answered = math.inf
        for request, sample in work:
            sampling = request.sampling
            params = SamplingParams(
                temperature=sampling.temperature,  # 0: the most probable token
                top_p=sampling.top_p,
                max_tokens=sampling.limit,
                # By default vLLM would seed sample k of a request with seed + k. Its generators count from
                # the request's first token, so what goes on with a response has another seed.
                seed=derive(request.seed, sample, *([len(request.begun)] if request.begun else ())),
                stop_token_ids=list(self._settings.eos_ids),
                logprobs=0,  # of the sampled token alone
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,  # nothing is built per token and response
            )
            name = f"{request.draw}/{sample}"
            self._engine.add_request(name, TokensPrompt(prompt_token_ids=list(request.context)), params)
            self._asked[name] = (request.draw, sample)

    def poll(self) -> list[Completion]:
        """Decode until a response has finished and some more may have, or for some seconds: that it returns shows
        progress.

        Raises DivergedError where the policy computes nothing that could be sampled from.
        """
        finished: list[RequestOutput] = []
        idle = max(0.0, time.monotonic() - self._answered)
        end = time.monotonic() + PROGRESS_SECONDS
        while len(finished) < len(self._asked) and time.monotonic() < end:
            ended = [output for output in self._engine.step() if output.finished]
            if ended and not finished:
                end = time.monotonic() + min(LONGEST, TOGETHER * idle)
            finished += ended
        self._answered = time.monotonic()
        return [self._completion(output) for output in finished]

    def cancel(self) -> list[Completion]:
        """Stop all requests; returns what those that decode have written."""
        processor, cut = self._engine.output_processor, []
        for name, (draw, sample) in self._asked.items():
            (state,) = (processor.request_states[one] for one in processor.external_req_ids[name])
            tokens = state.detokenizer.output_token_ids
            if len(tokens):
                logps = log_probs(state.logprobs_processor.logprobs.logprobs)
                cut.append(self._completed(draw, sample, tokens, logps, "length"))
        self._engine.abort_request(list(self._asked))
        self._asked = {}
        return cut

    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-probs of `tokens` after `prompt` at temperature 1; only while nothing is in flight."""
        sequence = [*prompt, *tokens]
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        self._engine.add_request(PROBE, TokensPrompt(prompt_token_ids=sequence), params)
        outputs: list[RequestOutput] = []
        while self._engine.has_unfinished_requests():
            outputs += self._engine.step()
        scored = outputs[-1].prompt_logprobs
        return [scored[at][sequence[at]].logprob for at in range(len(prompt), len(sequence))]

    def _completion(self, output: RequestOutput) -> Completion:
        draw, sample = self._asked.pop(output.request_id)
        (response,) = output.outputs
        if response.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended a response for a reason of its own: {response.finish_reason}")
        logps = log_probs(response.logprobs.logprobs)
        return self._completed(draw, sample, response.token_ids, logps, response.finish_reason)

    def _completed(
        self, draw: int, sample: int, tokens: Sequence[int], logps: array[float], finish: Finish
    ) -> Completion:
        require_finite(logps)
        return Completion(
            draw=draw,
            sample=sample,
            tokens=token_ids(tokens),
            logps=logps,
            finish=finish,
            policy_version=self.version,
        )


def _arguments(settings: EngineSettings) -> EngineArgs:
    gpu = torch.cuda.is_available()
    return EngineArgs(
        model=str(model_folder(settings)),
        load_format="dummy",  # the learner's weights come with the first sync
        skip_tokenizer_init=True,
        dtype=settings.dtype,
        max_model_len=settings.context,
        max_num_seqs=settings.max_rows,
        kv_cache_memory_bytes=round(settings.cache_gib * GIB) if settings.cache_gib else None,
        gpu_memory_utilization=SHARED if settings.colocate else ALONE,
        enable_sleep_mode=gpu and settings.colocate,
        tensor_parallel_size=settings.tensor_parallel,
        distributed_executor_backend=FailTogether if settings.tensor_parallel > 1 else None,
        logprobs_mode="processed_logprobs",  # after the temperature
        worker_extension_cls="prorl.cluster.vllm_engine.WeightsExtension",
        weight_transfer_config=None
        if settings.transfer == "host"
        else WeightTransferConfig(backend=settings.transfer),
        enforce_eager=settings.compilation == "off"
        or not gpu,  # on a CPU graphs cost minutes and gain little
        compilation_config=CompilationConfig(**({} if settings.compilation == "full" else SAFE)),
        # Where a prompt is cut in two, a seeded request takes back the first half's random number, which the
        # generators of a CPU cannot.
        enable_chunked_prefill=gpu,
        max_num_batched_tokens=max(PASS_TOKENS, settings.max_rows, 0 if gpu else settings.context),
        disable_log_stats=True,
    )


def model_folder(settings: EngineSettings) -> Path:
    """A transformers directory here of all that vLLM reads of a model besides its weights, equal for equal settings.

    vLLM keeps what it compiles under its name, for the next start.
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
