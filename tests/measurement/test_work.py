"""What is seen to before anything is built."""

import pytest

from prorl.config.recipe import load_recipe
from prorl.measurement import work
from prorl.sandbox.link import SandboxError
from support.runs import quiet


def test_programs_are_tried_where_they_will_be_judged(monkeypatch):
    def refuse(config):
        raise SandboxError("no sandbox beside the driver")

    monkeypatch.setattr(work, "check_sandbox", refuse)
    elsewhere = load_recipe("nano", ["backend=ray", "cluster.judges=1"])
    assert work.build_tasks(elsewhere, quiet()).problem(0, "train").prompt
    for here in (["backend=ray"], ["cluster.judges=1"]):
        with pytest.raises(SandboxError, match="beside the driver"):
            work.build_tasks(load_recipe("nano", here), quiet())
