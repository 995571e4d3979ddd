"""Figures as files: sharp, on white, and with one sentence where the machine cannot draw."""

import importlib.util
import struct
import sys

import pytest

from prorl.lab.report.page import ReportError
from prorl.lab.report.pictures import SCALE, WIDTH, browser_path, export_figures
from prorl.lab.report.section import Figure
from prorl.lab.report.style import label

FIGURE = Figure(
    key="curve",
    title="A curve",
    data=({"type": "scatter", "x": [1, 2, 3], "y": [1.0, float("nan"), 2.0], "name": label("<img src=x>")},),
    layout={"height": 320, "showlegend": True},
)
drawing = pytest.mark.skipif(
    browser_path() is None or importlib.util.find_spec("playwright") is None,
    reason="no Chromium or no Playwright on this machine",
)


@drawing
def test_a_png_has_the_figures_own_height_at_double_density(tmp_path):
    (path,) = export_figures([FIGURE], tmp_path / "new", "png")
    content = path.read_bytes()
    assert path.name == "curve.png"
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (SCALE * WIDTH, SCALE * 320)


@drawing
def test_an_svg_holds_names_as_text(tmp_path):
    (path,) = export_figures([FIGURE], tmp_path, "svg")
    content = path.read_text()
    assert content.startswith("<svg")
    assert f'width="{WIDTH}" height="320"' in content
    assert "&#60;img src=x&#62;" in content
    assert "<img" not in content


def test_without_a_browser_it_says_what_to_install(tmp_path, monkeypatch):
    pytest.importorskip("playwright")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(ReportError, match="playwright install chromium"):
        export_figures([FIGURE], tmp_path)


def test_without_playwright_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(ReportError, match=r"pip install 'prorl\[figures\]'"):
        export_figures([FIGURE], tmp_path)
