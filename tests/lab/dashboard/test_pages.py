"""What the pages say of files that change, are damaged, or lie elsewhere; and which runs there are."""

import os
import shutil
import time

import pytest

from prorl.config.schema import DeadlinesConfig
from prorl.control.events import Stopped, to_record
from prorl.lab.dashboard import pages
from prorl.lab.dashboard.pages import RunPage, RunsPage, find_runs
from prorl.run import history
from prorl.run.history import RECENT
from prorl.run.layout import LOCK, hold_lock
from prorl.run.process import Heartbeat
from prorl.run.store import RunStore
from prorl.stopwatch import WAITING
from support.evaluations import evaluation, result
from support.events import intervened, reset, stepped
from support.stories import STARTED, keep, write_run


def append(folder, *events) -> None:
    with RunStore.open(folder) as store:
        for event in events:
            store.journal.append(to_record(event))


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "runs" / "nano", [STARTED, stepped(1), stepped(2)], steps=50)


def html(sections) -> dict[str, str]:
    return {section.key: section.html for section in sections}


@pytest.fixture
def page(run):
    page = RunPage(run, commands=True)
    yield page
    page.close()


def composed(page: RunPage, found) -> dict[str, str]:
    """The page as soon as it is as wanted; what evaluations say comes from another process."""
    deadline = time.monotonic() + 60
    while not found(seen := html(page.look())):
        assert time.monotonic() < deadline, seen.keys()
        time.sleep(0.05)
    return seen


def test_a_page_follows_its_run_and_makes_nothing_again_that_did_not_change(page, run):
    first, second = page.look(), page.look()
    same = {one.key for one, other in zip(first, second, strict=True) if one is other}
    assert {section.key for section in first} - same == {"health"}  # it tells the time
    assert ">2<" in html(first)["health"]
    append(run, stepped(3), reset(3))
    seen = html(page.look())
    assert ">3<" in seen["health"]
    assert "reference reset at step 3" in seen["health"]


def test_where_only_the_health_changes_curves_are_not_made_again(page, run, monkeypatch):
    health = iter(["last written 1 s ago", "last written 2 s ago"])
    monkeypatch.setattr(history, "health", lambda *_, **__: next(health))
    first, second = ({one.key: one for one in page.look()} for _ in range(2))
    changed = {key for key in first if first[key] is not second[key]}
    assert changed == {"health", "summary"}


def test_rollouts_come_as_they_are_written(page, run):
    assert "No rollout is stored yet" in html(page.look())["rollouts"]
    sample = {"prompt": "what?", "response": "<b>that</b>", "domain": "math", "score": 1.0, "status": "ok"}
    with RunStore.open(run) as store:
        store.write_samples(2, [sample])
    assert "&lt;b&gt;that" in html(page.look())["rollouts"]


def test_measurements_come_from_another_process_are_renewed_and_damaged_ones_do_not_hide_the_rest(page, run):
    before = composed(page, lambda seen: "Not measured" in seen.get("measured", ""))
    models = evaluation("base", [result(0, 4)], step=0), evaluation("step_000002", [result(4, 4)], step=2)
    keep(run, *models, name="evaluation")
    after = composed(page, lambda seen: seen["measured"] != before["measured"])
    assert "Not measured" not in after["measured"]
    for model in models:
        (run / "evals" / "evaluation" / f"{model.model}.parquet").write_bytes(b"no Parquet")
    seen = composed(page, lambda seen: "cannot be read" in "".join(seen.values()))
    assert ">2<" in seen["health"]


def spoil_samples(run):
    (run / "samples" / "step_000001.jsonl").mkdir(parents=True)  # a folder where a file should be
    return (run / "samples" / "step_000001.jsonl").rmdir


def spoil_recipe(run):
    whole = (run / "config.json").read_bytes()
    (run / "config.json").write_text('{"tasks": 5, "steps": 50}')
    return lambda: (run / "config.json").write_bytes(whole)


@pytest.mark.parametrize("spoil", [spoil_samples, spoil_recipe])
def test_what_breaks_the_reader_is_a_sentence_as_long_as_it_lasts(page, run, spoil):
    page.look()
    mend = spoil(run)
    for _ in range(2):
        seen = html(page.look())
        assert "cannot be shown as it is now" in seen["trouble"]
    assert ">2<" in seen["health"]
    mend()
    assert "trouble" not in html(page.look())


def test_a_damaged_journal_is_said_and_the_rest_shown_and_a_run_that_vanishes_is_no_disaster(page, run):
    with (run / "journal.jsonl").open("ab") as file:
        file.write(b"{\n" + b'{"kind": "dreamt", "step": 3}\n')
    seen = html(page.look())["health"]
    assert "damaged at line " in seen
    assert "1 more line" in seen
    for name in ("journal.jsonl", "config.json"):
        (run / name).unlink()
    assert "cannot be read" in html(page.look())["health"]


# -- the list


def test_the_list_follows_all_runs(run):
    page = RunsPage(run.parent)
    assert ">2<" in html(page.look())["runs"]
    append(run, stepped(3))
    write_run(run.parent / "group" / "other", [])
    with RunStore.open(run):
        seen = html(page.look())["runs"]
        assert ">3<" in seen
        assert "running" in seen
        assert 'href="/run/group/other"' in seen
    assert "crashed" in html(page.look())["runs"]  # without a word


def test_a_paused_run_is_paused_at_every_look(run):
    append(run, intervened(action="pause", reason="x"))
    with hold_lock(run / LOCK):
        heart = Heartbeat(run / "heartbeat.json", DeadlinesConfig())
        heart(WAITING)
        heart.close()
        page = RunsPage(run.parent)
        for _ in range(2):
            assert "waiting" not in page.look()[0].html


def test_of_runs_that_rest_few_steps_are_kept(run, monkeypatch):
    page = RunsPage(run.parent)
    page.look()
    append(run, *map(stepped, range(3, 30)))
    page.look()
    assert len(page._runs["nano"].steps) > RECENT
    monkeypatch.setattr(pages, "GOES_ON", 0.0)
    for _ in range(2):
        assert ">29<" in html(page.look())["runs"]
    assert len(page._runs["nano"].steps) == RECENT
    append(run, Stopped(step=29, reason="done"))
    assert "done" in html(page.look())["runs"]


@pytest.mark.parametrize(
    ("name", "shown", "address"),
    [
        ("a <b> & 100%", ">a &lt;b&gt; &amp; 100%<", "a%20%3Cb%3E%20%26%20100%25"),
        (os.fsdecode(b"\xff"), ">?<", "%FF"),
    ],
)
def test_a_name_is_text_and_its_link_an_address_and_hides_no_other(run, name, shown, address):
    shutil.copytree(run, run.parent / name)
    seen = html(RunsPage(run.parent).look())["runs"]
    assert shown in seen
    assert f'href="/run/{address}"' in seen
    assert 'href="/run/nano"' in seen


def test_of_many_runs_those_written_last_come_first(run, monkeypatch):
    monkeypatch.setattr(pages, "AT_A_TIME", 0.0)
    for age, name in enumerate(("older", "oldest"), start=1):
        shutil.copytree(run, run.parent / name)
        os.utime(run.parent / name / "journal.jsonl", (1e9 - age, 1e9 - age))
    page = RunsPage(run.parent)
    seen = [html(page.look())["runs"] for _ in range(3)]
    assert "2 more runs to be read" in seen[0]
    assert [text.count("<tr><td ") for text in seen] == [1, 2, 3]
    assert 'href="/run/nano"' in seen[0]
    assert "to be read" not in seen[2]


def test_runs_that_go_on_stand_before_those_that_rest_and_say_how_long(page, run):
    write_run(run.parent / "a", [STARTED, Stopped(step=0, reason="done")])
    with RunStore.open(run):
        seen = html(RunsPage(run.parent).look())["runs"]
        assert "<dt>left</dt><dd>8 min</dd>" in html(page.look())["health"]
    assert seen.index("/run/nano") < seen.index("/run/a")
    assert "<dt>left</dt><dd>–</dd>" in html(page.look())["health"]


def test_a_run_that_breaks_its_reader_does_not_hide_the_others(run):
    (run.parent / "odd").mkdir()
    (run.parent / "odd" / "config.json").write_text("{}")
    (run.parent / "odd" / "journal.jsonl").write_text("[" * 100_000 + "\n")
    seen = html(RunsPage(run.parent).look())["runs"]
    assert "damaged at line 1" in seen
    assert 'href="/run/nano"' in seen


# -- which runs there are


@pytest.fixture
def root(tmp_path):
    for name in ("a", "group/b", "deep/er/c"):
        RunStore.create(tmp_path / "runs" / name, {"steps": 1})
    RunStore.create(tmp_path / "outside", {"steps": 1})
    return tmp_path / "runs"


def test_runs_lie_in_the_folder_or_one_level_below_unless_it_is_a_run(root):
    assert find_runs(root) == {"a": root / "a", "group/b": root / "group" / "b"}
    assert find_runs(root / "a") == {"a": root / "a"}


def test_a_link_within_the_folder_counts_and_one_out_of_it_does_not(root):
    (root / "link").symlink_to(root.parent / "outside")
    (root / "alias").symlink_to(root / "a")
    (root.parent / "shown").symlink_to(root)  # the folder itself may be one
    for folder in (root, root.parent / "shown"):
        assert set(find_runs(folder)) == {"a", "alias", "group/b"}


def test_an_empty_or_missing_folder_holds_none(tmp_path):
    assert find_runs(tmp_path) == find_runs(tmp_path / "nowhere") == {}
    assert "prorl train" in html(RunsPage(tmp_path).look())["runs"]
