"""What vLLM's workers can do besides their own methods: take new weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


class WeightsExtension:
    """Mixed into vLLM's worker class by its option `worker_extension_cls`."""

    model_runner: Any

    def install_weights(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Serve these weights from now on.

        `load_weights` of the model would not do: kernels have repacked what it writes to, so vLLM must go through
        loading and repacking again.
        """
        self.model_runner.reload_weights(weights_iterator=iter(named))
