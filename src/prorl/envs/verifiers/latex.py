"""One spelling for what can be written in several ways, and cutting text at its outermost separators.

`normalised` changes how a formula is spelled, never what it says: sizes, spaces and fonts go, look-alike signs
become one sign. Everything after it in the pipeline relies on that spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

_SIGNS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "×": "*",
        "·": "*",
        "⋅": "*",
        "∗": "*",
        "÷": "/",
        "⁄": "/",
        "∕": "/",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "⩽": r"\le ",
        "≥": r"\ge ",
        "⩾": r"\ge ",
        "≠": r"\ne ",
        "±": r"\pm ",
        "ℝ": r"\mathbb{R}",
        "…": "...",
        "⟨": "(",
        "⟩": ")",
        "∪": r"\cup ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "√": r"\sqrt ",
        "°": r"^\circ ",
        "½": r"\frac{1}{2}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "％": "%",
        "，": ",",
        "：": ":",
        "（": "(",
        "）": ")",
        "\u00a0": " ",
        "\u202f": " ",
        "\u2009": " ",
        "€": "",
        "£": "",
        "¥": "",
        "₹": "",
    }
)
_RAISED = MappingProxyType(
    {ord(raised): plain for raised, plain in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True)}
)
_RAISED_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")

# command → its one spelling; commands that only change the look become a space
_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
        **dict.fromkeys(("leq", "leqslant", "leqq"), r"\le "),
        **dict.fromkeys(("geq", "geqslant", "geqq"), r"\ge "),
        **dict.fromkeys(("neq",), r"\ne "),
        **dict.fromkeys(("cdot", "times", "ast"), "*"),
        **dict.fromkeys(("vert", "lvert", "rvert", "mid"), "|"),
        **dict.fromkeys(("varnothing",), r"\emptyset "),
        **dict.fromkeys(("lbrace",), r"\{"),
        **dict.fromkeys(("langle",), "("),
        **dict.fromkeys(("rangle",), ")"),
        **dict.fromkeys(("backslash",), r"\setminus "),
        **dict.fromkeys(("lor", "vee"), " or "),
        **dict.fromkeys(("dots", "ldots", "cdots"), "..."),
        **dict.fromkeys(("R", "reals"), r"\mathbb{R}"),
        **dict.fromkeys(("rbrace",), r"\}"),
        **dict.fromkeys(("degree",), r"^\circ "),
        **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
        **dict.fromkeys(("div",), "/"),
        **dict.fromkeys(("lt",), "<"),
        **dict.fromkeys(("gt",), ">"),
        **dict.fromkeys(("quad", "qquad", "displaystyle", "textstyle", "limits", "nolimits", "hfill"), " "),
        **dict.fromkeys(("left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr"), ""),
    }
)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_FONT = re.compile(
    r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|mbox|operatorname|boxed|fbox)\*?\s*"
    r"\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_SPACE = re.compile(r"(?<!\\)\\[,;:> ]|~")
_DIGIT_GROUP = re.compile(r"(?<=[0-9])(?:\\[,; ]|~)(?=[0-9]{3}(?![0-9]))")
_POSITIVE_INFINITY = re.compile(r"(?<![0-9A-Za-z})\]])(\s*)\+\s*(?=\\infty)")
_DOUBLE_DEGREE = re.compile(r"\^\s*(?:\{\s*)?(?:\^\s*)?\\circ\s*\}?")
_SHORT_FRACTION = re.compile(r"\\frac\s*([0-9])\s*(?:([0-9])|(?=\{))")
_HALF_SHORT_FRACTION = re.compile(r"\\frac\s*(\{[^{}]*\})\s*([0-9])")
_BLACKBOARD = re.compile(r"\\(?:mathbb|Bbb)\s*\{?\s*R\s*\}?")
_EMPTY_SET = re.compile(r"\\\{\s*\\\}")
_INFINITY = re.compile(r"(?i)(?<![A-Za-z\\])infinity(?![A-Za-z])")
_CHOOSE = re.compile(r"(?<![A-Za-z0-9])C\s*_\s*\{?\s*([0-9]+)\s*\}?\s*\^\s*\{?\s*([0-9]+)\s*\}?")
_DOTTED = re.compile(r"\\dot\s*\{?([0-9])\}?(?:([0-9]*)\\dot\s*\{?([0-9])\}?)?")
_AND_SO_ON = re.compile(r"(?<=[0-9.])(?P<again>[0-9]{1,9}?)(?P=again){2,}\s*\.{3}")
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]|\$")
_GAP = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])|(?<![0-9]) (?=[0-9])|(?<=[0-9]) (?![0-9])")

# nothing to respell: no dots that go on, no infinity, no binomial coefficient
_ALREADY = re.compile(r"(?!.*(?:\.\.\.|(?i:infinity)))(?:[0-9A-Za-z+\-/^().,=%\s]|\*(?!\*))*", re.DOTALL)

_OPENING, _CLOSING = "([{", ")]}"


def normalised(text: str) -> str:
    """The one spelling of an answer.

    >>> normalised(r"$\\dfrac12\\,\\text{cm}$.")
    '\\\\frac{1}{2} cm'
    """
    if _ALREADY.fullmatch(text):
        return " ".join(text.split()).rstrip(" .,;")
    text = text.replace("**", "^")
    text = _RAISED_RUN.sub(lambda run: "^{" + run[0].translate(_RAISED) + "}", text).translate(_SIGNS)
    text = text.replace(r"\!", "").replace("{,}", ",").replace(r"\$", "").replace(r"\%", "%")
    text = _DIGIT_GROUP.sub("", _DELIMITERS.sub("", text))
    text = _COMMAND.sub(lambda name: _COMMANDS.get(name[1], name[0]), text)
    text = _SPACE.sub(" ", text)
    for _ in range(3):  # a font inside a font inside a box is as deep as answers go
        text = _FONT.sub(r" \1 ", text)
    text = _BLACKBOARD.sub(r"\\mathbb{R}", _EMPTY_SET.sub(r"\\emptyset ", _INFINITY.sub(r"\\infty ", text)))
    text = _DOTTED.sub(r"\\overline{\1\2\3}", _AND_SO_ON.sub(r"\\overline{\g<again>}", text))
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    text = _DOUBLE_DEGREE.sub(r"^\\circ ", text)
    text = _POSITIVE_INFINITY.sub(r"\1", text)
    text = _SHORT_FRACTION.sub(_braced, text)
    text = _HALF_SHORT_FRACTION.sub(r"\\frac\1{\2}", text)
    text = " ".join(text.split()).rstrip(" .,;")
    return _without_outer_braces(text)


def compact(text: str) -> str:
    """Without the spaces that say nothing: those inside `12 34` and `not x` stay."""
    return _GAP.sub("", text)


def split_top(text: str, separators: Sequence[str]) -> list[str] | None:
    """The parts between separators outside all brackets, stripped; None where the brackets do not match.

    >>> split_top("(1, 2), [3, 4)", ",")
    ['(1, 2)', '[3, 4)']
    """
    depth, start, position = 0, 0, 0
    parts = []
    while position < len(text):
        char = text[position]
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
            if depth < 0:
                return None
        found = (
            next((mark for mark in separators if text.startswith(mark, position)), None)
            if not depth
            else None
        )
        if found is None:
            position += 1
            continue
        parts.append(text[start:position].strip())
        position += len(found)
        start = position
    parts.append(text[start:].strip())
    return parts if depth == 0 else None


def _braced(match: re.Match[str]) -> str:
    second = "{" + match[2] + "}" if match[2] else ""
    return r"\frac{" + match[1] + "}" + second


def _without_outer_braces(text: str) -> str:
    while text.startswith("{") and text.endswith("}") and not text.endswith(r"\}"):
        inner = text[1:-1]
        if split_top(inner, ()) is None:
            return text
        text = inner.strip()
    return text
