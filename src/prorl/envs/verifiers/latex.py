r"""One spelling for what can be written in several ways, the parts of answers that have several, written numbers.

`normalised` changes how a formula is spelled, never what it says: sizes, spaces and fonts go, look-alike signs become
one sign. `parts_of` cuts lists, sets, tuples, intervals, unions, ratios and matrices; it keeps what brackets say:
`(1, 2)` has an order, `[1, 2]` has ends, `\{1, 2\}` and `1, 2` have neither. An inequality in one variable is the
interval that it describes, two joined by `or` are a union.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

MAX_PARTS = 40

_GREEK = (
    "alpha beta gamma delta epsilon eta theta kappa lambda mu rho sigma tau phi phi chi psi omega Delta Omega"
)
_SIGNS = str.maketrans(
    {sign: plain for signs, plain in (
        ("−–﹣", "-"), ("×·⋅∗", "*"), ("÷⁄∕", "/"), ("π", r"\pi "), ("∞", r"\infty "), ("≤⩽", r"\le "),
        ("≥⩾", r"\ge "), ("≠", r"\ne "), ("±", r"\pm "), ("ℝ", r"\mathbb{R}"), ("…", "..."), ("⟨（", "("),
        ("⟩）", ")"), ("∪", r"\cup "), ("∈", r"\in "), ("∅", r"\emptyset "), ("√", r"\sqrt "), ("°", r"^\circ "),
        ("％", "%"), ("½", r"\frac{1}{2}"), ("¼", r"\frac{1}{4}"), ("¾", r"\frac{3}{4}"), ("，", ","), ("：", ":"),
        ("\u00a0\u202f\u2009", " "), ("€£¥₹", ""),
        *((sign, rf"\{name} ") for sign, name in zip("αβγδεηθκλμρστφϕχψωΔΩ", _GREEK.split(), strict=True)),
        *((sign, f"_{place}") for place, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")),
    ) for sign in signs}
)  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")

# command → its one spelling; commands that only change the look become a space or nothing
_COMMANDS = {name: plain for names, plain in (
    ("dfrac tfrac cfrac", r"\frac"), ("leq leqslant leqq", r"\le "), ("geq geqslant geqq", r"\ge "), ("neq", r"\ne "),
    ("cdot times ast", "*"), ("vert lvert rvert mid", "|"), ("varnothing", r"\emptyset "), ("lbrace", r"\{"),
    ("rbrace", r"\}"), ("langle", "("), ("rangle", ")"), ("backslash", r"\setminus "), ("lor vee", " or "),
    ("dots ldots cdots", "..."), ("R reals", r"\mathbb{R}"), ("degree", r"^\circ "), ("dbinom tbinom", r"\binom"),
    ("div", "/"), ("lt", "<"), ("gt", ">"), ("quad qquad displaystyle textstyle limits nolimits hfill", " "),
    ("lg", r"\log_{10}"), ("tg", r"\tan"), ("ctg", r"\cot"), ("arctg", r"\arctan"),
    ("left right big Big bigg Bigg bigl bigr Bigl Bigr", ""),
) for name in names.split()}  # fmt: skip
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_FONT = re.compile(
    r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|mbox|rm|operatorname|boxed|fbox)\*?\s*"
    r"\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_SPACE = re.compile(r"(?<!\\)\\[,;:> ]|~")
_DIGIT_GROUP = re.compile(r"(?<=[0-9])(?:\\[,; ]|~| )(?=[0-9]{3}(?![0-9/]))")
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]|\$")
_GAP = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])|(?<![0-9]) (?=[0-9])|(?<=[0-9]) (?![0-9])")
_EMPHASIS = re.compile(r"[\s$]*\*\*([^*]+)\*\*[\s$]*")
# applied in this order, after fonts are gone
_SPELLINGS = tuple((re.compile(pattern), plain) for pattern, plain in (
    (r"(?i)(?<![A-Za-z\\])infinity(?![A-Za-z])", r"\\infty "),
    (r"(?i)(?<![A-Za-z\\])all real numbers(?![A-Za-z])", r"\\mathbb{R}"),
    (r"(?<=[0-9])\s*[xX]\s*(?=10\s*\^\s*\{?\s*[-+]?[0-9])", "*"),
    (r"\\\{\s*\\\}", r"\\emptyset "),
    (r"\\(?:mathbb|Bbb)\s*\{?\s*R\s*\}?", r"\\mathbb{R}"),
    (r"(?<=[0-9.])(?=[0-9]++\s*\.{3})(?P<again>[0-9]{1,9}?)(?P=again){2,}+\s*\.{3}", r"\\overline{\g<again>}"),
    (r"\\bar\s*\{?([0-9]+)\}?", r"\\overline{\1}"),
    (r"\\dot\s*\{?([0-9])\}?(?:([0-9]*)\\dot\s*\{?([0-9])\}?)?", r"\\overline{\1\2\3}"),
    (r"(?<![A-Za-z0-9])C\s*_\s*\{?\s*([0-9]+)\s*\}?\s*\^\s*\{?\s*([0-9]+)\s*\}?", r"\\binom{\1}{\2}"),
    (r"\^\s*(?:\{\s*(?:\^\s*)?\\circ\s*\}|(?:\^\s*)?\\circ(?![A-Za-z]))", r"^\\circ "),
    (r"(?<![0-9A-Za-z})\]])(\s*)\+\s*(?=\\infty)", r"\1"),
    (r"\\pmod\s*\{?\s*([0-9]+)\s*\}?", r"\\pmod{\1}"),
    (r"\\frac\s*([0-9])\s*([0-9])", r"\\frac{\1}{\2}"),
    (r"\\frac\s*([0-9])\s*(?=\{)", r"\\frac{\1}"),
    (r"\\frac\s*(\{[^{}]*\})\s*([0-9])", r"\\frac\1{\2}"),
))  # fmt: skip


def normalised(text: str) -> str:
    """The one spelling of an answer.

    >>> normalised(r"$\\dfrac12\\,\\text{cm}$.")
    '\\\\frac{1}{2} cm'
    """
    if whole := _EMPHASIS.fullmatch(text):
        text = whole[1]
    text = text.replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    text = _RAISED_RUN.sub(lambda run: "^{" + run[0].translate(_RAISED) + "}", text).translate(_SIGNS)
    text = text.replace(r"\!", "").replace("{,}", ",").replace(r"\$", "").replace(r"\%", "%")
    text = _DIGIT_GROUP.sub("", _DELIMITERS.sub("", text))
    text = _COMMAND.sub(lambda name: _COMMANDS.get(name[1], name[0]), text)
    text = _SPACE.sub(" ", text)
    for _ in range(3):  # a font inside a font inside a box is as deep as answers go
        text = _FONT.sub(r" \1 ", text)
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    text = re.sub(r"^(?:\\approx(?![a-z])|≈|~)\s*", "", " ".join(text.split()).rstrip(" .,;"))
    while text[:1] == "{" and text[-1:] == "}" and text[-2:] != r"\}" and split_top(text[1:-1]) is not None:
        text = text[1:-1].strip()
    return text


def compact(text: str) -> str:
    """Without the spaces that say nothing: those inside `12 34` and `not x` stay."""
    return _GAP.sub("", text)


def split_top(text: str, separator: str = "(?!)") -> list[str] | None:
    """The parts between matches of a pattern outside all brackets, stripped; None where the brackets do not match.

    >>> split_top("(1, 2), [3, 4)", ",")
    ['(1, 2)', '[3, 4)']
    """
    depth, start, parts = 0, 0, []
    for mark in re.finditer(rf"[()\[\]{{}}]|{separator}", text):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if depth < 0:
            return None
        if depth == 0 and mark[0] not in ")]}":
            parts.append(text[start : mark.start()].strip())
            start = mark.end()
    parts.append(text[start:].strip())
    return parts if depth == 0 else None


Kind = Literal["set", "union", "()", "[]", "(]", "[)", ":", "rows"]

_BRACKETS: tuple[Kind, ...] = ("[]", "[)", "(]", "()")
_MATRIX = re.compile(r"([^=<>&]*)\\begin\{([pbB]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\2\}", re.DOTALL)
_OR = re.compile(r"(?:,\s*)?(?<![A-Za-z\\])or(?![A-Za-z])")
_AND = re.compile(r"(?:,\s*)?(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_BOTH = re.compile(r"\\pm(?![a-z])")
_REALS = r"\mathbb{R}"
_HOLES = re.compile(r"\\mathbb\{R\}\s*(?:\\setminus|-)\s*\\\{(.*)\\\}")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_ORDER = r"\\[lg]e(?![a-z])|[<>]"
_BUILDER = re.compile(r"\\\{\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*([^{}|]*)\\\}")
_VARIABLE = re.compile(r"[A-Za-z]|\\(?:theta|alpha|lambda|mu|phi)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Several answers in one; without order where the kind is `set` or `union`. The rows of a matrix are tuples."""

    kind: Kind
    items: tuple[str, ...]
    variable: str = ""  # of an inequality, which is an interval


def parts_of(text: str) -> Parts | None:
    """The parts of a normalised answer; None for an answer of one part, or of too many.

    >>> parts_of("1, 2").kind, parts_of("(1, 2]").items
    ('set', ('1', '2'))
    """
    readers = (_matrix, _condition, _reals, _builder, _both_signs, _list, _union, _bracketed, _ratio)
    parts = next((parts for read in readers if (parts := read(text)) is not None), None)
    return parts if parts is not None and len(parts.items) <= MAX_PARTS else None


def _several(kind: Kind, items: Sequence[str] | None) -> Parts | None:
    return Parts(kind=kind, items=tuple(items)) if items is not None and len(items) > 1 else None


def relation_of(text: str) -> Parts | None:
    """The interval of an inequality such as `1 < x \\le 2` or `x > 3`; None for anything else."""
    parts = split_top(text, _ORDER)
    if parts is None or not 2 <= len(parts) <= 3 or not all(parts):
        return None
    signs = re.findall(_ORDER, text)
    if len(signs) != len(parts) - 1 or len({sign in ("<", r"\le") for sign in signs}) != 1:
        return None
    if signs[0] in (">", r"\ge"):
        parts, signs = parts[::-1], signs[::-1]
    is_open = [sign in ("<", ">") for sign in signs]
    low, *middle, high = parts
    if middle:
        variable = middle[0]
    elif low[:1] == low[-1:] == "|" and _VARIABLE.fullmatch(low[1:-1]):
        variable, low, is_open = low[1:-1], f"-({high})", is_open * 2
    elif _VARIABLE.fullmatch(low):
        variable, low, is_open = low, r"-\infty", [True, *is_open]
    else:
        variable, high, is_open = high, r"\infty", [*is_open, True]
    if not _VARIABLE.fullmatch(variable):
        return None
    return Parts(kind=_BRACKETS[2 * is_open[0] + is_open[1]], items=(low, high), variable=variable)


def is_interval(parts: Parts) -> bool:
    """Whether the brackets can only mean an interval: `(1, 2)` may as well be a point."""
    is_open = parts.kind == "()" and any("infty" in end for end in parts.items)
    return len(parts.items) == 2 and (is_open or parts.kind in ("[]", "(]", "[)"))


def _both_signs(text: str) -> Parts | None:
    return None if len(_BOTH.findall(text)) != 1 or "," in text else Parts(kind="set", items=_signed([text]))


def _signed(items: Sequence[str]) -> tuple[str, ...]:
    r"""Those that are not empty; `a \pm b` is `a + b` and `a - b`."""
    return tuple(
        _BOTH.sub(sign, item).strip() if sign else item
        for item in filter(None, items)
        for sign in ("+-" if len(_BOTH.findall(item)) == 1 else [""])
    )


def _reals(text: str) -> Parts | None:
    """The real line, or the intervals between the numbers that are taken out of it."""
    if text == _REALS:
        return Parts(kind="()", items=(r"-\infty", r"\infty"))
    match = _HOLES.fullmatch(text)
    if match is None:
        return None
    holes = [(read_numeral(hole), hole) for hole in split_top(match[1], ",") or ()]
    values = sorted((numeral.value, hole) for numeral, hole in holes if numeral is not None)
    if len(values) != match[1].count(",") + 1:
        return None
    ends = [r"-\infty", *(hole for _, hole in values), r"\infty"]
    return Parts(kind="union", items=tuple(f"({low}, {high})" for low, high in pairwise(ends)))


def _builder(text: str) -> Parts | None:
    r"""`\{x | 1 < x < 2\}`: what its condition describes."""
    match = _BUILDER.fullmatch(text)
    parts = _condition(match[2]) if match else None
    if match is None or parts is None or parts.variable not in ("", match[1]):
        return None
    return replace(parts, variable="")


def _condition(text: str) -> Parts | None:
    """The interval of an inequality, or `x < 1 or x > 2`: the union of those of several in one variable."""
    relations = [relation_of(part.strip()) for part in _OR.split(text)]
    found = [relation for relation in relations if relation is not None]
    if len(found) < len(relations) or len({relation.variable for relation in found}) > 1:
        return None
    items = tuple(f"{each.kind[0]}{', '.join(each.items)}{each.kind[1]}" for each in found)
    return Parts(kind="union", items=items) if len(found) > 1 else found[0]


def _matrix(text: str) -> Parts | None:
    """The rows of a matrix, a factor in front multiplied into its cells."""
    bare = text[1:-1].strip() if text[:1] + text[-1:] in ("()", "[]") else ""
    in_brackets = bare.startswith(r"\begin{array}") and bare.endswith(r"\end{array}")
    match = _MATRIX.fullmatch(bare if in_brackets else text)
    if match is None or r"\begin" in match[3]:
        return None
    rows = [row.split("&") for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match[3]) if row.strip()]
    if factor := match[1].strip().removesuffix("*"):
        rows = [[f"({factor})*({cell})" for cell in row] for row in rows]
    return Parts(kind="rows", items=tuple(map(_row, rows)))


def _row(cells: Sequence[str]) -> str:
    bare = [_THOUSANDS.sub("", cell.strip()) for cell in cells]
    return f"({', '.join(bare)})" if len(bare) > 1 else bare[0]


def _list(text: str) -> Parts | None:
    if not re.search(r"[(\[{]", text):
        text = _THOUSANDS.sub("", text)
    parts = _several("set", split_top(_AND.sub(",", text), "[,;]"))
    return parts and Parts(kind="set", items=_signed(parts.items))


def _union(text: str) -> Parts | None:
    return _several("union", split_top(text, r"\\cup"))


def _bracketed(text: str) -> Parts | None:
    if text.startswith(r"\{") and text.endswith(r"\}"):
        items = split_top(text[2:-2], "[,;]")
        return None if items is None else Parts(kind="set", items=_signed(items))
    kind = next((kind for kind in _BRACKETS if kind == text[:1] + text[-1:]), None)
    parts = _several(kind, split_top(text[1:-1], "[,;]")) if kind else None
    if parts and kind == "[]" and all(item[:1] == "[" and item[-1:] == "]" for item in parts.items):
        rows = [split_top(item[1:-1], ",") or [item] for item in parts.items]
        return Parts(kind="rows", items=tuple(map(_row, rows)))
    return parts


def _ratio(text: str) -> Parts | None:
    parts = _several(":", split_top(compact(text), ":"))
    return parts if parts and all(parts.items) else None


# Numbers, read exactly: a value is a `Fraction`, never a float, and only 0-9 are digits. A decimal remembers how
# precisely it was written, because that decides whether it may stand for a number it only rounds.

ENOUGH_DIGITS = 6  # from as many significant digits on, a rounded decimal may stand for the number it rounds
MAX_DIGITS = 300  # of one numeral; longer ones are not read

_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)"
_SIGN = r"[+-]?\s*"
_POWER_OF_TEN = (
    r"(?:[eE](?P<short>[+-]?[0-9]{1,3})(?![0-9])"
    r"|\s*\*\s*10\s*\^\s*(?:\{\s*(?P<braced>[+-]?\s*[0-9]{1,3})\s*\}|(?P<bare>-?[0-9]{1,3}(?![0-9]))))"
)
_NUMERAL = re.compile(
    rf"(?P<sign>{_SIGN})(?:"
    rf"(?P<whole>{_WHOLE})(?:\s*\\frac\s*\{{\s*(?P<upper>[0-9]+)\s*\}}\s*\{{\s*(?P<lower>[0-9]+)\s*\}}"
    r"|\s+(?P<part>[0-9]+)\s*/\s*(?P<parts>[0-9]+))"
    rf"|(?P<left>{_DECIMAL})\s*/\s*(?P<right>{_DECIMAL})"
    rf"|\\frac\s*\{{\s*(?P<top>{_SIGN}{_DECIMAL})\s*\}}\s*\{{\s*(?P<bottom>{_SIGN}{_DECIMAL})\s*\}}"
    r"|(?P<once>[0-9]*\.[0-9]*)\\overline\s*\{\s*(?P<again>[0-9]+)\s*\}"
    rf"|(?P<number>{_DECIMAL}){_POWER_OF_TEN}?"
    r")"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeral:
    """A number and how it was written."""

    value: Fraction
    places: int | None = None  # of a decimal: its last digit counts 10**-places; None if written exactly
    digits: int = 0  # of a decimal: significant digits


def read_numeral(text: str) -> Numeral | None:
    """The number that is the whole text; None if it is anything else.

    >>> read_numeral("-1,234.50").value
    Fraction(-2469, 2)
    >>> read_numeral("2*10^{-3}").value, read_numeral("3 1/2").value
    (Fraction(1, 500), Fraction(7, 2))
    >>> read_numeral("2+3") is None
    True
    """
    numeral, rest = leading_numeral(text.strip())
    return None if rest else numeral


def leading_numeral(text: str) -> tuple[Numeral | None, str]:
    """The longest number at the start of the text, and what follows it; (None, text) without one."""
    match = _NUMERAL.match(text)
    if match is None or match.end() > MAX_DIGITS:
        return None, text
    sign, rest = (-1 if match["sign"].startswith("-") else 1), text[match.end() :]
    if match["number"]:
        exponent = int((match["short"] or match["braced"] or match["bare"] or "0").replace(" ", ""))
        value = sign * _plain(match["number"]) * Fraction(10) ** exponent
        whole, point, decimals = match["number"].replace(",", "").partition(".")
        if not point:
            return Numeral(value=value), rest
        digits = len((whole + decimals).lstrip("0"))
        return Numeral(value=value, places=len(decimals) - exponent, digits=digits), rest
    if match["again"]:  # the repeated digits are that many nines of the last place before them
        last_place = 10 ** len(match["once"].partition(".")[2])
        repeated = Fraction(int(match["again"]), last_place * (10 ** len(match["again"]) - 1))
        return Numeral(value=sign * (_plain("0" + match["once"]) + repeated)), rest
    top = _plain(match["upper"] or match["part"] or match["left"] or match["top"])
    bottom = _plain(match["lower"] or match["parts"] or match["right"] or match["bottom"])
    if bottom == 0 or (match["whole"] and not 0 < top < bottom):  # `2\frac{3}{2}` is as likely a product
        return None, text
    return Numeral(value=sign * (_plain(match["whole"] or "0") + top / bottom)), rest


def _plain(digits: str) -> Fraction:
    return Fraction(re.sub("[, ]", "", digits).removesuffix("."))


def agree(one: Numeral, other: Numeral) -> bool:
    """Equal in value, or one is the other rounded or cut to at least six significant decimal digits.

    1/3 agrees with 0.333333 but not with 0.333, and 1 with 1.000 but neither with 1.0000001 nor with 0.999999.
    """
    return one.value == other.value or _rounds(one, other) or _rounds(other, one)


def _rounds(short: Numeral, exact: Numeral) -> bool:
    if short.places is None or short.digits < ENOUGH_DIGITS:
        return False
    if exact.places is not None and exact.places <= short.places:
        return False
    scale = Fraction(10) ** short.places
    written, scaled = short.value * scale, exact.value * scale
    return written in (round(scaled), int(scaled))
