"""Sections as one HTML page.

A report is a file that fetches nothing; a live page has no inline script or style. Everything on a page travels as
JSON in which `<`, `>` and `&` are escaped, and `assets/page.js` builds the page from it. What is not finite becomes
null: a gap in a curve. Whatever a model wrote reaches `Section.html` through `escape` and a figure through
`drawing.label`.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from pydantic_core import to_jsonable_python

from prorl.envs.errors import ProrlError
from prorl.lab.report.drawing import template
from prorl.lab.tables import Figure, Table, escape, to_html

ASSETS = Path(__file__).parent / "assets"
PLOTLY = "plotly.js"
LONGEST = 4_000  # characters of a text that a page shows; of a longer one the middle is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a page: a heading, safe HTML, tables below it, then figures."""

    key: str  # unique on the page, and its anchor
    title: str
    html: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


# -- safe HTML


def shortened(text: str) -> str:
    """The text, without its middle if it is longer than `LONGEST`; says how much was left out."""
    head, left_out = LONGEST // 2, len(text) - LONGEST
    if left_out <= 0:
        return text
    return f"{text[:head]}\n[… {left_out:,} characters left out …]\n{text[head + left_out :]}"


def paragraph(*sentences: str, tone: str = "") -> str:
    """Sentences as one escaped paragraph, in a tone (`soft`, `good`, `warn`, `bad`) if one is given."""
    kind = f' class="{tone}"' if tone else ""
    return f"<p{kind}>{escape(' '.join(filter(None, sentences)))}</p>"


def bullets(texts: Iterable[str], *, tone: str = "plain") -> str:
    """An escaped list, or nothing without entries."""
    items = "".join(f'<li class="{tone}">{escape(text)}</li>' for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def heading(text: str) -> str:
    """An escaped heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


def preformatted(text: str) -> str:
    """Escaped text, letter by letter as it was written."""
    return f'<pre tabindex="0">{escape(text)}</pre>'


def fold(title: str, body: str) -> str:
    """Safe HTML that shows when its escaped title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def _below_title(table: Table) -> str:
    if table.folded:
        return fold(table.title, to_html(table))
    return (heading(table.title) if table.title else "") + to_html(table)


# -- the page


def page(title: str, sections: Sequence[Section], *, live: bool = False) -> str:
    """The whole page as HTML.

    Live it refers to `/assets/…` and leaves room for the script that keeps it up to date, `/assets/live.js`. Raises
    ProrlError: plotly is not installed completely.
    """
    if live:
        head = '<link rel="stylesheet" href="/assets/page.css">'
        scripts = [f'<script src="/assets/{name}"></script>' for name in (PLOTLY, "page.js", "live.js")]
    else:
        # A script element ends at the first `</script`, also one in a string.
        texts = [asset(name).replace("</script", "<\\/script") for name in (PLOTLY, "page.js")]
        hashes = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in texts)
        own = " ".join(f"'sha256-{one}'" for one in hashes)
        # A browser runs no other script and fetches nothing.
        policy = f"default-src 'none'; script-src {own}; style-src 'unsafe-inline'; img-src data: blob:"
        head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{asset("page.css")}</style>'
        scripts = [f"<script>{text}</script>" for text in texts]
    themes = {theme: template(theme) for theme in ("light", "dark")}
    data = to_script_json({"templates": themes, "sections": [section_json(section) for section in sections]})
    values = {"title": escape(title), "head": head, "scripts": "".join(scripts), "data": data}
    return Template(asset("page.html")).substitute(values)


def section_json(section: Section) -> dict[str, Any]:
    """A section as the plain data that `prorl.apply` in page.js takes: its tables are part of the HTML."""
    return {
        "key": section.key,
        "title": section.title,
        "html": section.html + "".join(map(_below_title, section.tables)),
        "figures": to_jsonable_python(section.figures, inf_nan_mode="null"),
    }


def to_script_json(value: Any) -> str:
    """JSON that is safe inside a script element: pure ASCII without `<`, `>` and `&`."""
    plain = to_jsonable_python(value, inf_nan_mode="null")
    text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    """The text of an asset."""
    return asset_path(name).read_text(encoding="utf-8")


def asset_path(name: str) -> Path:
    """Where `page.html`, `page.css`, `page.js` or, in the installed plotly package, `plotly.js` lies.

    Raises ProrlError: plotly is not installed completely.
    """
    if name != PLOTLY:
        return ASSETS / name
    spec = find_spec("plotly")  # found, not imported: plotly.py is large and not needed
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise ProrlError("plotly.js, which draws the figures, is missing: `pip install --force-reinstall plotly`")
