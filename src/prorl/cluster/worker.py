"""What vLLM's workers can do besides their own methods: take new weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from prorl.cluster.checksums import word_sum


class WeightsExtension:
    """Mixed into vLLM's worker class by its option `worker_extension_cls`."""

    model_runner: Any
    weight_transfer_engine: Any
    update_weights: Any

    def install_weights(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Serve these weights from now on.

        `load_weights` of the model would not do: kernels have repacked what it writes to, so vLLM must go through
        loading and repacking again.
        """
        self.model_runner.reload_weights(weights_iterator=iter(named))

    def receive_weights(self, update_info: Mapping[str, Any]) -> dict[str, int]:
        """vLLM's `update_weights`; returns the `word_sum` of every weight as the model was given it.

        What the model does with it then, the sums do not show.
        """
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
            del model.load_weights  # the method of its class shows again
        return {name: int(total) for name, total in sums.items()}
