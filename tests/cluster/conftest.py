"""These tests run vLLM in their own process, which reads its environment when it is imported."""

import os

from prorl.cluster.settings import engine_environment

os.environ.update(engine_environment(threads=1, device="cpu"))
