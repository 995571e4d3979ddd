"""What the probe tells a user: the tier that `auto` really reaches, and what each missing piece costs."""

from __future__ import annotations

from prorl.envs.sandbox.probe import probe
from prorl.envs.sandbox.sandbox import Sandbox


def test_the_tier_reported_is_the_tier_opened():
    report = probe()
    with Sandbox.open() as sandbox:
        assert report.tier == sandbox.tier


def test_what_is_missing_has_a_cost_and_what_works_has_none(monkeypatch):
    monkeypatch.setattr("prorl.envs.sandbox.link.find_bubblewrap", lambda: None)
    report = probe()
    assert report.tier == "B"
    findings = {finding.name: finding for finding in report.findings}
    assert not findings["bubblewrap"].works
    assert "apt-get install bubblewrap" in findings["bubblewrap"].cost
    assert all(bool(finding.cost) != finding.works for finding in report.findings)
