"""The page in a real browser: figures come when they are looked at, and what a model wrote stays text."""

import json
from dataclasses import replace

import pytest

from prorl.lab.report.page import Section, page, section_json
from prorl.lab.report.rollouts import rollout_section
from prorl.lab.report.sections import sections
from prorl.lab.tables import Figure
from prorl.run.history import read_history
from support import events
from support.browser import inaccessible, needs_chromium, opened
from support.journals import run_with

pytestmark = needs_chromium

HOSTILE = '</script><script>window.hurt = 1</script><img src=x onerror="window.hurt = 1; alert(1)">'
SAMPLE = dict.fromkeys(("task", "domain", "prompt", "response", "note"), HOSTILE) | {"status": "ok"}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run in which everything that can be a text is an attack."""
    folder = tmp_path_factory.mktemp("runs") / "hostile"
    rollout_stats = events.rollout_stats(domain_scores={HOSTILE: 0.5, "math": 0.25})
    happened = [
        *(events.stepped(step, rollout_stats=rollout_stats) for step in range(1, 41)),
        events.evaluated(0, 0.25, domains={HOSTILE: 0.25}),
        events.evaluated(40, 0.5, domains={HOSTILE: 0.5}),
        events.reset(20),
        events.command("note", step=30, text=HOSTILE),
    ]
    run_with(folder, happened, model={"path": HOSTILE}, tasks={HOSTILE: {"weight": 1.0}})
    (folder / "samples").mkdir()
    (folder / "samples" / "step_000010.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    file = folder / "report.html"
    file.write_text(page(HOSTILE, sections([read_history(folder)])), encoding="utf-8")
    return file


def scrolled(tab):
    """Look at the whole page, so that every figure is drawn."""
    tab.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    for plot in tab.query_selector_all(".plot"):
        plot.scroll_into_view_if_needed()
    tab.wait_for_function("() => [...document.querySelectorAll('.plot')].every((plot) => plot.dataset.drawn)")


def test_figures_are_drawn_when_they_are_looked_at_and_nothing_is_fetched_or_run(report):
    with opened(report) as (tab, trouble):
        tab.wait_for_selector("[data-drawn]")
        assert 0 < len(tab.query_selector_all("[data-drawn]")) < len(tab.query_selector_all(".plot"))
        scrolled(tab)
        assert len(tab.query_selector_all(".plot .main-svg")) >= 16
        assert tab.evaluate("window.hurt") is None
        assert tab.query_selector("img") is None
        assert HOSTILE in tab.inner_text("main")
        assert HOSTILE in tab.text_content("#plot-validation .legend")
        tab.hover("#plot-validation")
        with tab.expect_download() as saved:  # the menu of a figure saves it as a picture with names as text
            tab.click("#plot-validation .modebar-btn")
        assert saved.value.suggested_filename == "validation.svg"
        picture = saved.value.path().read_text()
        assert picture.startswith("<svg")
        assert "&lt;img src=x" in picture or "&#60;img src=x" in picture
        assert "<img" not in picture
        assert trouble == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_themes(report, scheme):
    with opened(report, 390, 844, color_scheme=scheme) as (tab, trouble):
        scrolled(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        background, ink = tab.evaluate(
            "['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name])"
        )
        assert (brightness(background) > brightness(ink)) == (scheme == "light")
        assert inaccessible(tab) == []
        letters = tab.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
        assert (brightness(letters) < 128) == (scheme == "light")
        assert trouble == []


def test_rollouts_are_sifted_by_task_verdict_and_step_also_once_they_are_renewed(tmp_path):
    folder = tmp_path / "run"
    run_with(folder, [events.stepped(1)])
    (folder / "samples").mkdir()
    for step in (1, 2):
        asked = [("chain", "a", "ok"), ("chain", "a", "wrong"), ("sums", "b", "wrong")]
        lines = ""
        for task, prompt, status in asked:
            record = {"task": task, "domain": "math", "prompt": prompt, "status": status}
            lines += json.dumps(record | {"response": f"{status} {step}"}) + "\n"
        (folder / "samples" / f"step_{step:06d}.jsonl").write_text(lines)
    section = rollout_section(folder)
    file = tmp_path / "page.html"
    file.write_text(page("t", [section]), encoding="utf-8")

    def seen():
        return [one.inner_text() for one in tab.query_selector_all(".response pre") if one.is_visible()]

    with opened(file) as (tab, trouble):
        assert seen() == ["ok 2", "wrong 2", "wrong 2"]
        tab.select_option("[name=task]", "chain")
        assert sorted(seen()) == ["ok 1", "ok 2", "wrong 1", "wrong 2"]
        tab.select_option("[name=verdict]", "passed")
        assert seen() == ["ok 2", "ok 1"]
        tab.evaluate("(sections) => prorl.apply(sections)", [section_json(replace(section, title="renewed"))])
        assert seen() == ["ok 2", "ok 1"]
        tab.select_option("[name=step]", "1")
        assert seen() == ["ok 1"]
        tab.select_option("[name=verdict]", "")
        assert seen() == ["ok 1", "wrong 1"]
        assert trouble == []


def brightness(color):
    return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(","))) / 3


def test_apply_renews_what_changed_and_moves_nothing_that_a_reader_unfolded_scrolled_or_focused(tmp_path):
    def section(text, y, *more):
        rows = "".join(f"<tr><td><a href='#{row}'>{row}</a></td><td>{text}</td></tr>" for row in range(99))
        fold = "<details><summary>more</summary>text</details>"
        html = f'<p>{text}</p>{fold}<div class="scroll"><table>{rows}</table></div>'
        figure = Figure(key="f", title="F", data=({"type": "scatter", "x": [1, 2], "y": y},), layout={})
        return Section(key="one", title="One", html=html, figures=(figure, *more))

    def apply(*sections):
        tab.evaluate("(sections) => prorl.apply(sections)", [section_json(one) for one in sections])

    file = tmp_path / "page.html"
    file.write_text(page("live", [section("old", [1, 2])]), encoding="utf-8")
    second = Figure(key="g", title="G", data=({"x": [1], "y": [1]},), layout={}, note="new")
    with opened(file, height=6000) as (tab, trouble):
        tab.wait_for_selector("#plot-f[data-drawn]")
        tab.evaluate("document.querySelector('details').open = true")
        tab.focus("[href='#50']")
        place = tab.evaluate("document.querySelector('.scroll').scrollTop")
        apply(section("new", [1, 9], second))
        tab.wait_for_selector("#plot-g[data-drawn]")
        tab.wait_for_function("() => document.getElementById('plot-f').data[0].y[1] === 9")
        assert tab.inner_text(".body p") == "new"
        assert "new" in tab.inner_text("tr")
        assert tab.evaluate("document.querySelector('details').open")
        assert tab.evaluate("document.activeElement.hash") == "#50"
        assert tab.evaluate("document.querySelector('.scroll').scrollTop") == place > 0
        apply(section("new", [1, 9]))
        assert tab.query_selector("#figure-g") is None
        assert len(tab.query_selector_all("#contents a")) == 1
        assert trouble == []


def test_the_browser_itself_runs_no_script_but_the_pages_own(tmp_path):
    file = tmp_path / "page.html"
    careless = Section(key="one", title="One", html="<img src=x onerror='window.hurt = 1'>")
    file.write_text(page("t", [careless]).replace("</main>", "</main><script>window.hurt = 2</script>"))
    with opened(file) as (tab, trouble):
        tab.wait_for_selector("#one img", state="attached")
        assert tab.evaluate("window.hurt") is None
        assert any("Content Security Policy" in told for told in trouble)
