"""Checks on the visible form: bullets, highlights, sections, titles, brackets, JSON.

What the form should hold must be there: an empty title, placeholder, section or `{}` is none.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from prorl.envs.verifiers.instructions.text import has_words, sentences

CONSTRAINED = ("my answer is yes.", "my answer is no.", "my answer is maybe.")
_BRACKETED = re.compile(r"\[([^\[\]\n]*)\]")
_BRACKETED_WORD = re.compile(r"\[[^\[\]\s]+\]")
_BRACKETED_PAIR = re.compile(r"<<\s*[^\s<>]+\s+[^\s<>]+\s*>>")
_HIGHLIGHT = re.compile(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*|\*(?=\S)([^*\n]+)(?<=\S)\*")
_TITLE = re.compile(r"<<([^<>\n]+)>>")
_FENCE = re.compile(r"```[^\n`]*\n(.*)```", re.DOTALL)
_JOINT = re.compile(r"(?<=[.!?])-(?=\S)")


def placeholders(response: str, *, num_placeholders: int) -> bool:
    """At least this many placeholders in square brackets."""
    return sum(map(has_words, _BRACKETED.findall(response))) >= num_placeholders


def bullets(response: str, *, num_bullets: int) -> bool:
    """Exactly this many markdown bullet points, lines that begin with `* ` or `- `."""
    lines = (line.lstrip() for line in response.splitlines())
    return sum(line.startswith(("* ", "- ")) and has_words(line) for line in lines) == num_bullets


def constrained(response: str) -> bool:
    """Exactly one of IFEval's three answers occurs: naming them all is no answer."""
    lowered = response.lower()
    return sum(option in lowered for option in CONSTRAINED) == 1


def highlights(response: str, *, num_highlights: int) -> bool:
    """At least this many passages between `*` or `**` on one line; a bullet point is not one."""
    found = _HIGHLIGHT.findall(response)
    return sum(has_words(strong + plain) for strong, plain in found) >= num_highlights


def sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least this many numbers follow the section word, each with a text of its own before the next."""
    marker = re.compile(rf"(?<!\w){re.escape(section_spliter)}\s?(\d{{1,6}})(?!\d)")
    _, *pieces = marker.split(response)
    filled = {number for number, content in zip(pieces[::2], pieces[1::2], strict=True) if has_words(content)}
    return len(filled) >= num_sections


def json_format(response: str) -> bool:
    """The whole response, perhaps in a code fence, is a JSON object or array that is not empty."""
    body = response.strip()
    fenced = _FENCE.fullmatch(body)
    try:
        value = json.loads(fenced.group(1) if fenced else body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | list) and bool(value)


def title(response: str) -> bool:
    """A title in double angular brackets, and something that it is the title of."""
    rest = _TITLE.sub(lambda match: "" if has_words(match[1]) else match[0], response)
    return rest != response and has_words(rest)


def square_brackets(response: str) -> bool:
    """Every word stands in square brackets of its own."""
    rest, found = _BRACKETED_WORD.subn(" ", response)
    return found > 0 and not has_words(rest)


def bigram_wrapping(response: str) -> bool:
    """Words stand in pairs in double angular brackets; the last of an odd number may stand alone."""
    rest, found = _BRACKETED_PAIR.subn(" ", response)
    left = rest.split()
    return found > 0 and (not has_words(rest) or (len(left) == 1 and response.rstrip().endswith(left[0])))


def sentence_hyphens(response: str) -> bool:
    """All sentences, two at least, are joined by a hyphen without spaces."""
    pieces = _JOINT.split(response.strip())
    return len(pieces) >= 2 and all(len(sentences(piece)) == 1 for piece in pieces)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
