"""The benchmark runs from end to end at a tiny size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "sandbox.py"


@pytest.mark.parametrize("kind", ["script", "call"])
def test_it_compares_every_tier_with_a_bare_interpreter(kind):
    sizes = ["--programs", "2", "--repeats", "1", "--workers", "1", "--kind", kind]
    done = subprocess.run([sys.executable, BENCHMARK, *sizes], capture_output=True, text=True, check=True)
    assert "tier B" in done.stdout
    assert "× bare" in done.stdout
    assert "tier C" in done.stdout
