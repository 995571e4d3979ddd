"""The page: one file that fetches nothing, and nothing on it is markup that was not meant to be."""

import json
import re

import pytest

from prorl.lab.report.page import asset, page, section_json, to_script_json
from prorl.lab.report.section import Figure, Section

HOSTILE = "</script><script>window.hurt = 1</script><img src=x onerror=alert(1)>&amp;\u2028 \ud800"
SECTION = Section(
    key="one",
    title=HOSTILE,
    html="<p>fine</p>",
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
    assert "<style" not in html
    tags = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.DOTALL)
    assert not re.search(r"\s(style|on\w+)=", tags)
    assert len(html) < 20_000


def test_script_json_is_plain_ascii_without_markup():
    text = to_script_json({"a": HOSTILE, "b": [float("nan"), 1.5]})
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": HOSTILE, "b": [None, 1.5]}


def test_a_section_as_data_is_all_of_it():
    assert section_json(SECTION).keys() == {"key", "title", "html", "figures"}
    assert section_json(SECTION)["figures"][0].keys() == {"key", "title", "data", "layout", "note"}
