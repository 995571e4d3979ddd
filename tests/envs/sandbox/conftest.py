"""One open sandbox per tier and module: starting one takes a tenth of a second."""

import pytest

from prorl.envs.sandbox.sandbox import Policy, Sandbox
from support.sandbox_tiers import TIERS


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request):
    """A sandbox at tier A and at tier B."""
    with Sandbox.open(Policy(tier=request.param)) as opened:
        yield opened
