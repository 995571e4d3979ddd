"""One real sandbox for all tests here that need to open or run programs."""

from collections.abc import Iterator

import pytest

from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.verifiers.programs import Runner


@pytest.fixture(scope="session")
def run() -> Iterator[Runner]:
    with Sandbox.open(Policy()) as sandbox:
        yield sandbox.run
