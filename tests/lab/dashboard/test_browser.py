"""The dashboard in a real browser: what people see while a run goes on, and what a model cannot make them see."""

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from prorl.config.recipe import to_json
from prorl.control.events import CommandGiven, Started, to_record
from prorl.run.history import read_events
from prorl.run.store import RunStore
from support.browser import chromium, inaccessible, looking, needs_chromium
from support.events import command, evaluated, intervened, reset, stepped
from support.journals import run_with
from support.recipes import recipe
from support.served import served

pytestmark = needs_chromium

SLOW_RUN = Path(__file__).parents[2] / "support" / "slow_run.py"
LONGEST = (
    "Math.max(...[...document.querySelectorAll('.plot[data-drawn]')]"
    ".flatMap((plot) => plot.data.map((curve) => (curve.x || []).length)))"
)
HOSTILE = (
    "<script>window.owned = 1; alert(1)</script><img src=x onerror='window.owned=2'>"
    "</script></details></pre><b>bold</b><a href='javascript:window.owned=3'>x</a>&lt;script&gt;"
)


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@contextmanager
def training(folder: Path, *, seconds: float = 0.2, steps: int = 400):
    """A real run that goes on meanwhile."""
    process = subprocess.Popen([sys.executable, SLOW_RUN, folder, str(seconds), str(steps)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def journal(folder: Path) -> list:
    return list(read_events(folder)) if (folder / "journal.jsonl").exists() else []


def step_shown(page) -> int:
    return int(
        page.locator("#health dd").nth(1).evaluate("cell => cell.firstChild.textContent").replace(",", "")
    )


@pytest.mark.slow
def test_a_run_is_watched_and_steered(browser, tmp_path):
    folder = tmp_path / "runs" / "nano"
    folder.parent.mkdir()
    with (
        training(folder) as trainer,
        served(tmp_path / "runs", tmp_path / "log") as server,
        looking(browser) as (page, complaints),
    ):
        while len(journal(folder)) < 8:
            assert server.process.poll() is None
            assert trainer.poll() is None
            time.sleep(0.05)
        page.goto(f"{server.address}#token={server.token}")
        page.get_by_role("link", name="nano").wait_for()
        assert page.evaluate("location.href") == server.address  # the token is kept and no longer in sight
        page.get_by_role("link", name="nano").click()
        page.wait_for_selector(".plot[data-drawn]")
        before, drawn = step_shown(page), page.evaluate(LONGEST)
        page.wait_for_function(
            "step => parseInt(document.querySelectorAll('#health dd')[1].firstChild.textContent) > step",
            arg=before,
        )
        page.wait_for_function(f"drawn => {LONGEST} > drawn", arg=drawn)
        page.get_by_label("command").fill("kl.coef=0.5")
        page.get_by_role("button", name="give").click()
        page.get_by_text("is in the inbox").wait_for()
        page.get_by_text("command at step").first.wait_for()
        obeyed = next(event for event in journal(folder) if isinstance(event, CommandGiven))
        assert obeyed.settings == {"kl.coef": 0.5}
        assert obeyed.refused is None
        unconfirmed, question = (
            complaints  # it moves the hyperparameter far: the page asks and gives it again
        )
        assert "409" in unconfirmed
        assert re.fullmatch(
            r"dialog: kl\.coef moves from \S+ to 0\.5, more than 10 times\. Give this command\?", question
        )
        complaints.clear()
        page.get_by_label("command").fill("kl.coeff=1")
        page.get_by_role("button", name="give").click()
        page.get_by_text("did you mean").wait_for()
        [refusal] = complaints  # the browser's own line about an answer that is no success
        assert "422" in refusal
        complaints.clear()
        page.get_by_role("button", name="pause").click()
        page.get_by_text(re.compile(r"command at step \d+: pause")).first.wait_for()
        assert complaints == []


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A run that a hostile model, task and operator wrote into."""
    root = tmp_path_factory.mktemp("quiet") / "runs"
    config = to_json(recipe()) | {"name": HOSTILE, "steps": 100}
    with RunStore.create(root / "quiet", config) as store:
        events = [
            Started(config_hash="c", reference_hash="a"),
            *(stepped(step) for step in range(1, 30)),
            evaluated(20, 0.5, domains={HOSTILE: 0.5, "math": 0.5}),
            reset(10),
            intervened(step=15, reason=HOSTILE),
            command("note", step=18, text=HOSTILE),
        ]
        for event in events:
            store.journal.append(to_record(event))
        sample = {"step": 20, "task": HOSTILE, "domain": HOSTILE, "prompt": HOSTILE, "response": HOSTILE}
        store.write_samples(20, [sample | {"score": 1.0, "status": "wrong", "note": HOSTILE}])
    return root


@pytest.fixture(scope="module")
def server(quiet, tmp_path_factory):
    with served(quiet, tmp_path_factory.mktemp("log") / "log") as found:
        yield found


def test_what_a_model_wrote_stays_text(browser, server):
    asked = []
    with looking(browser, height=12_000) as (page, complaints):
        page.on("request", lambda request: asked.append(request.url))
        for path in ("", "run/quiet"):
            page.goto(f"{server.address}{path}")
            page.wait_for_selector("#runs, .plot[data-drawn]")
            page.get_by_text("<script>window.owned").first.wait_for()
            page.wait_for_timeout(500)
            assert page.evaluate("window.owned") is None
            assert page.locator("main img, main b, a[href^=javascript], svg a").count() == 0
        page.get_by_text("reference reset at step 10").first.wait_for()
        traces = "[...document.querySelectorAll('.plot')].flatMap((plot) => plot.data || [])"
        assert page.evaluate(f"{traces}.some((trace) => trace.name === 'reset')")
        assert complaints == []
    assert {url.startswith((server.address, "data:", "blob:")) for url in asked} == {True}


def test_the_list_is_sorted_sifted_and_overlaid(browser, tmp_path):
    for at, name in enumerate(("low", "high", "middle")):
        run_with(tmp_path / name, [stepped(1), evaluated(0, 0.1), evaluated(1, (0.2, 0.9, 0.5)[at])])
    with served(tmp_path, tmp_path / "log") as server, looking(browser) as (page, trouble):

        def names():
            return [row.inner_text() for row in page.locator(".runs tbody a").all() if row.is_visible()]

        page.goto(server.address)
        page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 3")
        page.click(".runs th button:has-text('last validation')")
        assert names() == ["low", "middle", "high"]
        page.click(".runs th button:has-text('last validation')")
        assert names() == ["high", "middle", "low"]
        assert page.locator(".spark").count() == 3
        page.fill("#runs .sift input", "i")
        assert names() == ["high", "middle"]
        assert page.locator("#runs .sift button").is_disabled()
        for name in names():
            page.check(f"input[value={name}]")
        run_with(tmp_path / "low", [stepped(1), evaluated(0, 0.1), evaluated(1, 0.2), stepped(2)])
        page.wait_for_function(
            "() => [...document.querySelectorAll('.runs progress')].some((bar) => bar.value === 2)"
        )
        assert names() == ["high", "middle"]
        assert inaccessible(page) == []
        page.click("#runs .sift button")
        page.wait_for_selector(".plot[data-drawn]")
        assert page.title() == "high, middle"
        assert inaccessible(page) == []
        assert trouble == []


def test_without_the_token_it_is_read_only(browser, quiet, server):
    with looking(browser) as (page, _):
        page.goto(f"{server.address}run/quiet")
        page.get_by_text("To give commands, open the address with the token").wait_for()
        assert page.get_by_role("button", name="pause").is_disabled()
        page.evaluate("document.querySelector('.commands fieldset').disabled = false")
        page.get_by_role("button", name="pause").click()
        page.get_by_text("this needs the token").wait_for()
        assert not (quiet / "quiet" / "inbox.jsonl").exists()


def test_a_lost_server_is_said_and_found_again(browser, quiet, tmp_path):
    with looking(browser) as (page, _):
        with served(quiet, tmp_path / "log") as server:
            page.goto(f"{server.address}run/quiet")
            page.wait_for_selector("html[data-live=yes]")
        page.wait_for_selector("html[data-live=no]")
        port = server.address.rstrip("/").rpartition(":")[2]
        with served(quiet, tmp_path / "log", "--port", port):
            page.wait_for_selector("html[data-live=yes]")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_is_wide_enough(browser, server, theme):
    with looking(browser, 390, 2400, color_scheme=theme) as (page, _):
        for path in ("", "run/quiet"):
            page.goto(f"{server.address}{path}")
            page.wait_for_selector("#runs, .plot[data-drawn]")
            assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert json.loads(page.locator("#page-data").text_content())["sections"] == []
