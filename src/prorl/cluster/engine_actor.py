"""An engine's process. vLLM is imported there alone, after its environment has been set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prorl.cluster.settings import EngineSettings
from prorl.cluster.weights import Weights
from prorl.types import Completion, Request


class EngineActor:
    """vLLM in a process of its own."""

    def __init__(self, settings: EngineSettings) -> None:
        from prorl.cluster.vllm_engine import VLLMEngine

        self._engine = VLLMEngine(settings)

    def install(self, weights: Weights) -> None:
        """Serve these weights."""
        self._engine.install(weights)

    def withdraw(self) -> None:
        """Serve nothing until there are other weights."""
        self._engine.withdraw()

    def transfer(self, step: str, *arguments: Any) -> list[Any]:
        """One step of vLLM's weight transfer; what each of the engine's workers answered."""
        return self._engine.transfer(step, *arguments)

    def serve(self, version: int) -> None:
        """Serve the weights that were transferred."""
        self._engine.serve(version)

    def sleep(self) -> None:
        """Hold no memory of the GPU until the next weights."""
        self._engine.sleep()

    def add(self, work: Sequence[tuple[Request, int]]) -> None:
        """Queue samples of requests."""
        for request, sample in work:
            self._engine.add(request, sample)

    def poll(self) -> list[Completion]:
        """Decode until something has finished."""
        return self._engine.poll()

    def cancel(self) -> None:
        """Drop everything."""
        self._engine.cancel()

    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """The engine's side of the probe."""
        return self._engine.score(prompt, tokens)
