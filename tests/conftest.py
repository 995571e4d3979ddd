"""What all tests share: examples drawn the same way on every run, and a disk that is full on demand."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec

import pytest
from hypothesis import settings

# No deadline: a test must not fail because the machine is busy.
settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")


# What a shell starts in the background ignores these, and so would every process that a test starts.
for kind, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(kind) is signal.SIG_IGN:
        signal.signal(kind, usual)

_SENTENCES = find_spec("llama_index")  # a package that ships NLTK's data of sentences, in .venv-evaluations
if _SENTENCES is not None and _SENTENCES.submodule_search_locations is not None:
    (_folder, *_) = _SENTENCES.submodule_search_locations
    os.environ.setdefault("NLTK_DATA", f"{_folder}/core/_static/nltk_cache")


@contextmanager
def _files_limited_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def files_limited_to() -> Callable[[int], AbstractContextManager[None]]:
    """A real limit of the system: a write beyond it fails half-way, as on a full disk."""
    return _files_limited_to
