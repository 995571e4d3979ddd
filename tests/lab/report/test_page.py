"""The page: one file that fetches nothing, and nothing on it is markup that was not meant to be."""

import json
import re

import pytest

from prorl.lab.evals.statistics import curve
from prorl.lab.report.drawing import GREY, RAMP, curve_traces, drawn, panels
from prorl.lab.report.page import Section, asset, page, section_json, to_script_json
from prorl.lab.tables import Figure, Table
from support.evaluations import evaluation, results

HOSTILE = "</script><script>window.hurt = 1</script><img src=x onerror=alert(1)>&amp;\u2028 \ud800"
SECTION = Section(
    key="one",
    title=HOSTILE,
    html="<p>fine</p>",
    tables=(Table(title="<t>", columns=("c",), rows=(("<b>",),), folded=True),),
    figures=(Figure(key="f", title=HOSTILE, data=({"x": [float("nan")], "y": [float("inf")]},), layout={}),),
)


def data_of(html):
    found = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', html, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


@pytest.mark.parametrize("live", [False, True])
def test_data_comes_through_whole_and_breaks_out_of_nothing(live):
    html = page(HOSTILE, [SECTION], live=live)
    (section,) = data_of(html)["sections"]
    assert section["title"] == HOSTILE
    assert section["figures"][0]["data"] == [{"x": [None], "y": [None]}]
    assert "window.hurt = 1</script>" not in html
    assert "<img" not in html.replace(asset("plotly.js"), "")
    html.encode("utf-8")


def test_a_report_is_one_file_without_addresses():
    html = page("run", [SECTION])
    own = html.replace(asset("plotly.js").replace("</script", "<\\/script"), "")
    assert len(own) < 60_000
    assert "http://" not in own
    assert "https://" not in own
    assert not re.search(r'(src|href)\s*=\s*"[^#]', own)
    assert not re.search(r"@import|url\(", own)


def test_a_live_page_has_no_script_or_style_of_its_own():
    html = page("run", [SECTION], live=True)
    tags = re.findall(r"<script[^>]*>", html)
    assert [tag for tag in tags if "src=" not in tag] == ['<script type="application/json" id="page-data">']
    assert not {part for part in ("<style", "http://", "https://") if part in html}
    tags = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.DOTALL)
    assert not re.search(r"\s(style|on\w+)=", tags)
    assert len(html) < 20_000


def test_script_json_is_plain_ascii_without_markup():
    text = to_script_json({"a": HOSTILE, "b": [float("nan"), 1.5]})
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": HOSTILE, "b": [None, 1.5]}


def test_a_section_as_data_is_all_of_it():
    shown = section_json(SECTION)["html"]
    assert shown.startswith("<p>fine</p><details><summary>&lt;t&gt;</summary>")
    assert "<td>&lt;b&gt;</td>" in shown
    assert section_json(SECTION).keys() == {"key", "title", "html", "figures"}
    assert section_json(SECTION)["figures"][0].keys() == {"key", "title", "data", "layout", "note"}


# -- models and panels

PROBLEMS = results([3, 0, 16])
BASE, FAR = evaluation("base", PROBLEMS, step=0), evaluation("Qwen/<b>", PROBLEMS)
STEPS = [evaluation(f"step_{step:06d}", PROBLEMS, step=step) for step in (10, 20, 30, 40)]


def test_the_base_is_grey_and_first_the_last_checkpoint_last_at_the_end_of_the_scale():
    models = drawn([BASE, *STEPS, FAR])
    titles = [model.evaluation.title for model in models]
    assert titles == ["base", "Qwen/<b>", "step 10", "step 20", "step 30", "step 40"]
    assert (models[0].color, models[-1].color) == (GREY, RAMP[-1])
    assert len({model.color for model in models}) == len(models)
    assert drawn([BASE, STEPS[0]])[-1].color == RAMP[-1]


def test_a_band_goes_along_the_upper_ends_and_back_along_the_lower_ones():
    line = curve(PROBLEMS, (1, 4, 16))
    band, drawn_line = curve_traces(drawn([BASE])[0], line, 1)
    assert band["x"] == [1, 4, 16, 16, 4, 1]
    assert band["y"] == [*(at.high for at in line), *(at.low for at in reversed(line))]
    assert (band["xaxis"], drawn_line["yaxis"]) == ("x2", "y2")


def test_panels_share_a_scale_and_name_their_axes_once():
    layout = panels("abcde", {"title": {"text": "k"}}, {"title": {"text": "pass@k"}})
    assert layout["grid"]["rows"] == 2
    assert all(layout[f"yaxis{panel}"]["matches"] == "y" for panel in range(2, 6))
    axes = [f"{letter}axis{number}" for letter in "xy" for number in ("", 2, 3, 4, 5)]
    titled = [axis for axis in axes if layout[axis]["title"]["text"]]
    assert titled == ["xaxis3", "xaxis4", "xaxis5", "yaxis", "yaxis4"]  # with no panel below, or to the left
