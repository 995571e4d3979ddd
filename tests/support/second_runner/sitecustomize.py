"""vLLM on a CPU as it is on a GPU: its second model runner, with asynchronous scheduling.

Every Python with this folder in its PYTHONPATH imports this first, so that Ray's workers have it, too. As soon as
vLLM is imported, Triton gets a backend whose kernels run in Triton's interpreter, and vLLM's platform keeps
asynchronous scheduling on.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"


class SecondRunner(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "vllm":
            from triton import backends

            driver = SimpleNamespace(is_active=lambda: True)
            backends.backends["cpu"] = SimpleNamespace(driver=driver, compiler=None)
        if name != "vllm.platforms.cpu":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_settle(module):
            execute(module)
            keep_asynchronous(module.CpuPlatform)

        spec.loader.exec_module = execute_and_settle
        return spec


def keep_asynchronous(platform):
    settle = platform.check_and_update_config.__func__

    def settle_asynchronous(cls, config):
        settle(cls, config)
        config.scheduler_config.async_scheduling = True

    platform.check_and_update_config = classmethod(settle_asynchronous)


sys.meta_path.insert(0, SecondRunner())
