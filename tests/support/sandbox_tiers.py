"""The tiers that contain programs, as parameters of tests (A only with bubblewrap), and the server of a sandbox."""

import pytest

from prorl.envs.sandbox.link import find_bubblewrap

needs_bubblewrap = pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed")
TIERS = [pytest.param("A", marks=needs_bubblewrap), "B"]


def server_pid(sandbox):
    """Process id of a sandbox's server without numpy, or of what contains it."""
    return sandbox._links[False].process.pid
