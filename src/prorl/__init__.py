"""ProRL v2: prolonged reinforcement learning of language models with verifiable rewards.

    import prorl

    run = prorl.train("nano", "steps=50")        # or prorl.open_run("runs/nano") of one that trains or has trained
    run.steps.to_pandas()                        # every number of every step; also .events, .evaluations, .rollouts

`prorl.api` documents each name; what is heavy is imported by the first call that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prorl.api import ProrlError, RunView, evaluate, load_recipe, open_run, resume, train

__version__ = "0.1.0"
__all__ = ["ProrlError", "RunView", "evaluate", "load_recipe", "open_run", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("prorl.api"), name)
