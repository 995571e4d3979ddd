"""Answers of several parts: lists, sets, tuples, intervals, unions, ratios, matrices.

What the brackets say is kept: `(1, 2)` has an order, `[1, 2]` has ends, `\\{1, 2\\}` and `1, 2` have neither.
An inequality in one variable is read as the interval that it describes, two of them joined by `or` as a union.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from prorl.envs.verifiers.latex import compact, split_top
from prorl.envs.verifiers.numerals import read_numeral

MAX_PARTS = 40

Kind = Literal["set", "union", "()", "[]", "(]", "[)", ":", "rows", "row"]

_MATRIX = re.compile(r"([^=<>&]*)\\begin\{([pbB]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\2\}", re.DOTALL)
_OR = re.compile(r"(?:,\s*)?(?<![A-Za-z\\])or(?![A-Za-z])")
_REALS = r"\mathbb{R}"
_HOLES = re.compile(r"\\mathbb\{R\}\s*(?:\\setminus|-)\s*\\\{(.*)\\\}")
_AND = re.compile(r"(?:,\s*)?(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_ORDER = (r"\le ", r"\ge ", r"\le", r"\ge", "<", ">")
_VARIABLE = re.compile(r"[A-Za-z]|\\(?:theta|alpha|lambda|mu|phi)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Several answers in one. The parts of kind `rows` are matrix rows, each to be read by `row_of`."""

    kind: Kind
    items: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        """Whether the order of the parts counts."""
        return self.kind not in ("set", "union")


def parts_of(text: str) -> Parts | None:
    """The parts of a normalised answer; None for an answer of one part, or of too many.

    >>> parts_of("1, 2").kind, parts_of("(1, 2]").items
    ('set', ('1', '2'))
    """
    parts = (
        _reals(text)
        or _both_signs(text)
        or _matrix(text)
        or _either(text)
        or _list(text)
        or _union(text)
        or _bracketed(text)
        or _ratio(text)
    )
    return parts if parts is not None and len(parts.items) <= MAX_PARTS else None


def row_of(text: str) -> Parts:
    """The cells of a matrix row."""
    return Parts(kind="row", items=tuple(cell.strip() for cell in text.split("&")))


def relation_of(text: str) -> tuple[str, Parts] | None:
    """The variable and the interval of an inequality such as `1 < x \\le 2` or `x > 3`; None for anything else."""
    parts = split_top(text, _ORDER)
    if parts is None or not 2 <= len(parts) <= 3 or not all(parts):
        return None
    signs = re.findall(r"\\le(?![a-z])|\\ge(?![a-z])|<|>", text)
    if len(signs) != len(parts) - 1 or len({sign in ("<", r"\le") for sign in signs}) != 1:
        return None
    if signs[0] in (">", r"\ge"):
        parts, signs = parts[::-1], signs[::-1]
    open_at = ["<" if sign in ("<", ">") else "=" for sign in signs]
    if len(parts) == 3 and _VARIABLE.fullmatch(parts[1]):
        return parts[1], _interval(parts[0], parts[2], open_at[0] == "<", open_at[1] == "<")
    if len(parts) == 2 and parts[0][:1] == parts[0][-1:] == "|" and _VARIABLE.fullmatch(parts[0][1:-1]):
        end_open = open_at[0] == "<"
        return parts[0][1:-1], _interval(f"-({parts[1]})", parts[1], end_open, end_open)
    if len(parts) == 2 and _VARIABLE.fullmatch(parts[0]):
        return parts[0], _interval(r"-\infty", parts[1], True, open_at[0] == "<")
    if len(parts) == 2 and _VARIABLE.fullmatch(parts[1]):
        return parts[1], _interval(parts[0], r"\infty", open_at[0] == "<", True)
    return None


def is_interval(parts: Parts) -> bool:
    """Whether the brackets can only mean an interval: `(1, 2)` may as well be a point."""
    closed = parts.kind in ("[]", "(]", "[)")
    return len(parts.items) == 2 and (
        closed or (parts.kind == "()" and any("infty" in end for end in parts.items))
    )


def _both_signs(text: str) -> Parts | None:
    r"""`a \pm b` is `a + b` and `a - b`."""
    if text.count(r"\pm") != 1 or "," in text:
        return None
    return Parts(kind="set", items=tuple(text.replace(r"\pm", sign).strip() for sign in "+-"))


def _interval(low: str, high: str, low_open: bool, high_open: bool) -> Parts:
    kinds: dict[tuple[bool, bool], Kind] = {
        (True, True): "()",
        (True, False): "(]",
        (False, True): "[)",
        (False, False): "[]",
    }
    return Parts(kind=kinds[low_open, high_open], items=(low, high))


def _reals(text: str) -> Parts | None:
    """The real line, or the intervals between the numbers that are taken out of it."""
    if text == _REALS:
        return _interval(r"-\infty", r"\infty", True, True)
    match = _HOLES.fullmatch(text)
    holes = (
        [
            (numeral.value, hole)
            for hole in (split_top(match[1], (",",)) or ())
            if (numeral := read_numeral(hole))
        ]
        if match
        else []
    )
    if not match or len(holes) != match[1].count(",") + 1:
        return None
    ends = [r"-\infty", *(hole for _, hole in sorted(holes)), r"\infty"]
    return Parts(kind="union", items=tuple(f"({low}, {high})" for low, high in pairwise(ends)))


def _either(text: str) -> Parts | None:
    """`x < 1 or x > 2`: the intervals of inequalities in one variable, as a union."""
    relations = [relation_of(part.strip()) for part in _OR.split(text)]
    if (
        len(relations) < 2
        or not all(relations)
        or len({variable for variable, _ in filter(None, relations)}) > 1
    ):
        return None
    intervals = (interval for _, interval in filter(None, relations))
    items = tuple(f"{each.kind[0]}{', '.join(each.items)}{each.kind[1]}" for each in intervals)
    return Parts(kind="union", items=items)


def _matrix(text: str) -> Parts | None:
    """The rows of a matrix, a factor in front multiplied into its cells."""
    match = _MATRIX.fullmatch(text)
    if match is None or r"\begin" in match[3]:
        return None
    rows = [row.strip() for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match[3])]
    factor = match[1].strip().removesuffix("*")
    if factor:
        rows = [" & ".join(f"({factor})*({cell})" for cell in row_of(row).items) for row in rows if row]
    return Parts(kind="rows", items=tuple(row for row in rows if row))


def _list(text: str) -> Parts | None:
    if not re.search(r"[(\[{]", text):
        text = _THOUSANDS.sub("", text)
    parts = split_top(_AND.sub(",", text), (",", ";"))
    if parts is None or len(parts) < 2:
        return None
    return Parts(kind="set", items=tuple(part for part in parts if part))


def _union(text: str) -> Parts | None:
    parts = split_top(text, (r"\cup",))
    return Parts(kind="union", items=tuple(parts)) if parts is not None and len(parts) > 1 else None


def _bracketed(text: str) -> Parts | None:
    if text.startswith(r"\{") and text.endswith(r"\}"):
        items = split_top(text[2:-2], (",", ";"))
        return None if items is None else Parts(kind="set", items=tuple(item for item in items if item))
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]"):
        return None
    items = split_top(text[1:-1], (",", ";"))
    if items is None or len(items) < 2:
        return None
    nested = [split_top(item[1:-1], (",",)) for item in items if item[:1] == "[" and item[-1:] == "]"]
    if text[0] == "[" and text[-1] == "]" and len(nested) == len(items) and all(nested):
        return Parts(kind="rows", items=tuple(" & ".join(cells) for cells in nested if cells))
    kind: Kind = "()" if text[0] + text[-1] == "()" else "[]"
    if text[0] + text[-1] in ("(]", "[)"):
        kind = "(]" if text[0] == "(" else "[)"
    return Parts(kind=kind, items=tuple(items))


def _ratio(text: str) -> Parts | None:
    parts = split_top(compact(text), (":",))
    if parts is None or len(parts) < 2 or not all(parts):
        return None
    return Parts(kind=":", items=tuple(parts))
