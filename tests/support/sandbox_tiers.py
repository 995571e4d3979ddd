"""The tiers that contain programs, as parameters of tests; A only where bubblewrap is installed."""

from __future__ import annotations

import pytest

from prorl.envs.sandbox import wall

needs_bubblewrap = pytest.mark.skipif(wall.find_bubblewrap() is None, reason="bubblewrap is not installed")
TIERS = [pytest.param("A", marks=needs_bubblewrap), "B"]
