"""Hypothesis draws the same examples on every run, and never fails a test because the machine is busy."""

from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")
