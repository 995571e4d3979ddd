"""Sections as one HTML page: for a report, a file that fetches nothing; live, a page without inline script or style.

Everything on the page travels as JSON in which `<`, `>` and `&` are escaped, and `assets/page.js` builds the page
from it. What is not finite becomes null: a gap in a curve.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from prorl.envs.errors import ProrlError
from prorl.lab.report import style
from prorl.lab.report.markup import escape
from prorl.lab.report.section import Section

ASSETS = Path(__file__).parent / "assets"
PLOTLY = "plotly.js"


class ReportError(ProrlError):
    """A page or its pictures cannot be made, said in one sentence."""


def page(title: str, sections: Sequence[Section], *, live: bool = False) -> str:
    """The whole page as HTML.

    Live it refers to `/assets/…` and leaves room for the script that keeps it up to date, `/assets/live.js`.

    Raises:
        ReportError: plotly is not installed whole.
    """
    head, scripts = _linked() if live else _inlined()
    values = {
        "title": escape(title),
        "head": head,
        "scripts": scripts,
        "data": to_script_json(
            {
                "templates": {theme: style.template(theme) for theme in ("light", "dark")},
                "sections": [section_json(section) for section in sections],
            }
        ),
    }
    return Template(asset("page.html")).substitute(values)


def section_json(section: Section) -> dict[str, Any]:
    """A section as the plain data that `prorl.apply` in page.js takes."""
    data = _plain(asdict(section))
    assert isinstance(data, dict)
    return data


def to_script_json(value: Any) -> str:
    """JSON that is safe inside a script element: pure ASCII without `<`, `>` and `&`."""
    text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    """The text of an asset.

    Raises:
        ReportError: plotly is not installed whole.
    """
    return asset_path(name).read_text(encoding="utf-8")


def asset_path(name: str) -> Path:
    """Where `page.html`, `page.css`, `page.js` or, in the installed plotly package, `plotly.js` lies.

    Raises:
        ReportError: plotly is not installed whole.
    """
    return _plotly() if name == PLOTLY else ASSETS / name


def _plotly() -> Path:
    spec = find_spec("plotly")  # found, not imported: plotly.py is large and not needed
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    path = None if folder is None else folder / "package_data" / "plotly.min.js"
    if path is None or not path.is_file():
        raise ReportError(
            "plotly.js, which draws the figures, is missing: `pip install --force-reinstall plotly`"
        )
    return path


def _inlined() -> tuple[str, str]:
    """What the file needs in its head and at its end; a browser fetches nothing and runs no other script."""
    # A script element ends at the first `</script`, also one in a string.
    scripts = [asset(name).replace("</script", "<\\/script") for name in (PLOTLY, "page.js")]
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{asset("page.css")}</style>'
    return head, "".join(f"<script>{text}</script>" for text in scripts)


def _linked() -> tuple[str, str]:
    """The same for the dashboard, which says its policy in a header."""
    scripts = (PLOTLY, "page.js", "live.js")
    head = '<link rel="stylesheet" href="/assets/page.css">'
    return head, "".join(f'<script src="/assets/{name}"></script>' for name in scripts)


def _plain(value: Any) -> Any:
    """JSON data without numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
