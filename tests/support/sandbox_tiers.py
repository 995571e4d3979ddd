"""The tiers that contain programs, as parameters of tests; A only where bubblewrap is installed."""

from __future__ import annotations

import pytest

from prorl.envs.sandbox.link import find_bubblewrap

needs_bubblewrap = pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed")
TIERS = [pytest.param("A", marks=needs_bubblewrap), "B"]
