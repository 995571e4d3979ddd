"""Figures as PNG or SVG files for papers, drawn by plotly.js in a headless Chromium. Nothing is fetched."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_to_bytes

from prorl.envs.files import write_atomic
from prorl.lab.report.page import PLOTLY, ReportError, asset, to_script_json
from prorl.lab.report.section import Figure
from prorl.lab.report.style import template

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT, SCALE = 900, 500, 2  # a layout's own height is kept; PNG has SCALE pixels per unit
FONT = "Helvetica, Arial, sans-serif"  # the same on every machine that opens an SVG
DRAW = "(asked) => { const { figure, options } = JSON.parse(asked); return Plotly.toImage(figure, options); }"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def export_figures(
    figures: Iterable[Figure], folder: Path, format: Literal["png", "svg"] = "svg"
) -> list[Path]:
    """Draw each figure to `folder/<key>.<format>`, 900 units wide on white; returns the files.

    Raises:
        ReportError: Playwright or a Chromium is missing, or the browser fails.
        StorageError: there is no room.
    """
    chosen = tuple(figures)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.key}.{format}" for figure in chosen]
    with _drawing_page() as page:
        for figure, path in zip(chosen, paths, strict=True):
            write_atomic(path, _draw(page, figure, format))
    return paths


def _print_template() -> dict[str, Any]:
    """The page's own look on white, in letters that can be read in a column of a paper."""
    look = template("light")
    layout = look["layout"]
    layout["font"] |= {"size": 15, "family": FONT}
    layout["legend"]["font"]["size"] = 14
    for axis in ("xaxis", "yaxis"):
        size = {"title": {**layout[axis]["title"], "font": {"size": 15}}, "tickfont": {"size": 13}}
        layout[axis] = {**layout[axis], **size, "showline": True}
    return look


def _draw(page: Page, figure: Figure, format: str) -> bytes:
    layout = {"height": HEIGHT, **figure.layout, "width": WIDTH, "template": _print_template()}
    options = {"format": format, "width": WIDTH, "height": layout["height"]}
    options |= {"scale": SCALE} if format == "png" else {}
    asked = to_script_json({"figure": {"data": figure.data, "layout": layout}, "options": options})
    url: str = page.evaluate(DRAW, asked)
    kind, _, content = url.partition(",")
    return base64.b64decode(content) if kind.endswith("base64") else unquote_to_bytes(content)


@contextmanager
def _drawing_page() -> Iterator[Page]:
    """An empty page that holds plotly.js, in a browser of its own."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise ReportError(
            "drawing pictures needs Playwright: install it with `pip install 'prorl[figures]'`"
        ) from error
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=browser_path())
        except Error as error:
            raise ReportError(
                "drawing pictures needs Chromium or Chrome: install it with `playwright install chromium` or from "
                f"the system's packages ({str(error).splitlines()[0]})"
            ) from error
        try:
            page = browser.new_page()
            page.add_script_tag(content=asset(PLOTLY))
            yield page
        except Error as error:
            raise ReportError(f"the browser could not draw: {str(error).splitlines()[0]}") from error
        finally:
            browser.close()


def browser_path() -> str | None:
    """The system's Chromium or Chrome; None where Playwright's own has to do."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
