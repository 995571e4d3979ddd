"""vLLM on a CPU as it is on a GPU: its second model runner, with asynchronous scheduling.

A plugin of pytest (`-p support.vllm_v2`), because it must be imported before vLLM. Triton gets a backend whose
kernels run in Triton's interpreter, and vLLM's platform keeps asynchronous scheduling on.
"""

import os
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"
from triton import backends

backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)

from vllm.platforms import cpu  # noqa: E402

_settle = cpu.CpuPlatform.check_and_update_config.__func__


def _settle_asynchronous(platform, config):
    _settle(platform, config)
    config.scheduler_config.async_scheduling = True


cpu.CpuPlatform.check_and_update_config = classmethod(_settle_asynchronous)
