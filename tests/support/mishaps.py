"""A verifier whose process meets, once, what no verifier can do to itself on purpose: somebody else's signal."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prorl.envs.registry import VerifierSpec, make_verifier
from prorl.envs.types import Problem, Verdict

SPEC = VerifierSpec(tasks=("arithmetic", "word_list"))
# Files: the next item meets the signal written there; no verifier can be built.
AMISS, CURSED = "amiss", "cursed"


def make_mishap(folder: Path) -> Callable[[Problem, str], Verdict]:
    """Fails while `cursed` lies in the folder; the first item after `amiss` was put there never ends by itself."""
    if (folder / CURSED).exists():
        raise MemoryError("for a while")
    return partial(_verify, make_verifier(SPEC), folder)


def _verify(verify: Callable[[Problem, str], Verdict], folder: Path, problem: Problem, text: str) -> Verdict:
    if (folder / AMISS).exists():
        kind = (folder / AMISS).read_text()
        (folder / AMISS).unlink()
        os.kill(os.getpid(), signal.Signals[kind])
        signal.pause()
    return verify(problem, text)
