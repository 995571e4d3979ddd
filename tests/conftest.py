"""What all tests share: examples drawn the same way on every run, and the signals that a shell leaves alone."""

import os
import signal
from importlib.util import find_spec

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
