"""The lineage of references on the page is what the journal says, and survives a journal that is being written."""

import pytest

from prorl.control.events import Resumed, Started
from prorl.lab.report.page import section_json
from prorl.lab.report.summary import lineage_section
from prorl.run.history import read_history
from support.events import reset, stepped
from support.journals import lines, run_with

EVENTS = [
    Started(config_hash="c", reference_hash="aaaa"),
    stepped(1),
    reset(2, hash="bbbb", reason="kl_ceiling"),
    Resumed(step=2, config_hash="d", branched_from="<b>nano@2"),
    reset(6, name="ref_002", parent="ref_001", source_step=4, reason="order", optimizer="clear", hash="cccc"),
    stepped(9),
]


def journal(folder, events, tail=b""):
    with (run_with(folder, events) / "journal.jsonl").open("ab") as file:
        file.write(tail)
    return read_history(folder)


def rows(html):
    return [row.split("</td>") for row in html.split("<tr>")[2:]]


def test_every_reference_is_in_the_table_with_its_birth_reason_parent_and_optimizer(tmp_path):
    section = lineage_section(journal(tmp_path, EVENTS))
    html = section_json(section)["html"]
    last = rows(html)[-1]
    for cell, said in zip(
        last, ["ref_002", "order", "ref_001", "clear", "cccc", "deleted", "6", "4"], strict=False
    ):
        assert cell.endswith(f">{said}")
    assert "reset twice" in section.html
    assert "kl ceiling" in html


def test_the_run_it_branched_from_is_told_and_escaped(tmp_path):
    assert "a branch of &lt;b&gt;nano@2" in lineage_section(journal(tmp_path, EVENTS)).html


def test_a_run_without_penalty_held_none(tmp_path):
    section = lineage_section(journal(tmp_path, [Started(config_hash="c", reference_hash=None), stepped(1)]))
    assert "No reference was ever held" in section.html


@pytest.mark.parametrize(
    "tail",
    [
        lines([reset(12, name="ref_003", parent="ref_002")])[:-9],
        b'{"kind":"reference_reset","step":12,"from_the_future":1}\n',
        b'{"kind":"unheard_of","step":12}\n',
        b'not "reference_reset" at all\n',
        b"",
    ],
)
def test_what_cannot_be_read_is_passed_over(tmp_path, tail):
    whole = lineage_section(journal(tmp_path / "run", EVENTS))
    torn = lineage_section(journal(tmp_path / "run", EVENTS, tail))
    assert torn.html == whole.html
