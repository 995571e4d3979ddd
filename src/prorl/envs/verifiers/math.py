"""Whether an extracted mathematical answer is the gold answer.

A pipeline from cheap and exact to costly: equal text; numbers as fractions; words; parts of lists, tuples, intervals
and matrices one by one; formulas by their values; relations; and math-verify for what is left. Each stage decides or
passes on. Text is never evaluated as code, and every stage bounds its own work.

What is decided on purpose stands in docs/tasks.md, and pair by pair in tests/envs/verifiers/test_math.py.

math-verify gets only what passes `is_harmless`: short, shallow, of known commands, without operations whose
evaluation can explode (towers, factorials, sums, integrals), and without infinity, which equals anything in sums. Its
own timeouts stay off: they cancel the caller's timers and raise a BaseException; the judge's deadline stands outside.
Only its LaTeX reader is used: the other one evaluates text by `sympy.parse_expr`, which is Python's `eval`.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod

from prorl.envs.extract import last_box
from prorl.envs.verifiers.formula import constant, ratio, same_formula
from prorl.envs.verifiers.latex import (
    ENOUGH_DIGITS,
    Numeral,
    Parts,
    agree,
    compact,
    is_interval,
    normalised,
    parts_of,
    read_numeral,
    relation_of,
    split_top,
)
from prorl.envs.verifiers.quantity import leading_irrational, read_amount, same_amount, unit_of

MAX_CHARS = 300  # what is parsed at most; the tail alone of a longer answer would be another answer
MAX_DEPTH = 4  # of parts inside parts, and of brackets for math-verify
MAX_PROSE_WORDS = 6  # of a gold answer in words; a longer one is an explanation
MAX_TOKENS, MAX_EXPONENT = 60, 20  # for math-verify
MAX_EXPONENT_IN_FUNCTION = 3  # likewise: functions of sums are expanded
MAX_LITERAL, MAX_WORD = 15, 3  # likewise: digits and letters in a row

_INTEGER = re.compile(r"-?[0-9]{1,30}")
_NAME = (
    r"(?:\\?[A-Za-z]+(?:_\{[^{}=<>]*\}|_\w+)?(?:\^\{-1\})?'*(?:\([A-Za-z0-9](?:,\s*[A-Za-z0-9])*\))?"
    r"|\\frac\{d[a-z]?\}\{d[a-z]\}|\| ?[A-Z]{2} ?\||\\(?:angle|vec) ?\{?[A-Za-z]{1,3}\}?)"
)
_NAMED = re.compile(rf"({_NAME}|\([A-Za-z](?:,\s*[A-Za-z])+\))\s*(?:=|\\in(?![a-z]))\s*(.+)", re.DOTALL)
_BRACED = re.compile(r"\\\{[^=]*\\\}")
_NAME_LAST = re.compile(rf"\A([^=<>]*[^=<>A-Za-z\\\s][^=<>]*?)\s*=\s*({_NAME})\Z")
_CONSTANT = re.compile(r"\+\s*[cC]$")
_SIGN = re.compile(r"\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|<|>|=")
_FLIPPED = {r"\le": r"\ge", r"\ge": r"\le", "<": ">", ">": "<", "=": "=", r"\ne": r"\ne"}
_READ_ALONE = (r"\infty", r"-\infty", r"\emptyset")
_UNITS = re.compile(r"(?:square |cubic )?units?(?: ?\^\{?[23]\}?)?")
_PROSE = re.compile(r"[A-Za-z][A-Za-z '’\-,]*")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_IN_BASE = re.compile(r"([0-9][0-9A-F]*)\s*_\s*\{?\s*([0-9]{1,2})\s*\}?")


def math_equal(answer: str, gold: str) -> bool:
    """Whether the answer, the text inside the last box or answer tag, equals the gold answer.

    Never raises for what the texts say. Raises ImportError: math-verify is not installed.

    >>> math_equal(r"\\frac{1}{2}", "0.5"), math_equal("3.14", r"\\pi"), math_equal("2, 1", r"\\{1, 2\\}")
    (True, False, True)
    """
    if answer == gold:
        return bool(answer.strip())
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):  # the usual case, in microseconds
        return int(answer) == int(gold)
    if len(answer) > MAX_CHARS or len(gold) > MAX_CHARS:
        return compact(normalised(answer)) == compact(normalised(gold)) != ""
    return _equal(_without_rounding(normalised(answer)), _without_rounding(normalised(gold)), depth=0)


def gold_verifies(gold: str) -> bool:
    """Whether a data set's gold answer can be verified: its box is read back, and other spellings can be compared.

    A gold that nothing here can read would reject right answers; a few words are compared as text.
    """
    text = normalised(gold)
    is_read_back = last_box(f"\\boxed{{{gold}}}") == gold and len(gold) <= MAX_CHARS
    named = _NAMED.fullmatch(text)
    return is_read_back and text != "" and _is_comparable(named[2] if named else text)


def _is_comparable(text: str) -> bool:
    parts = parts_of(text)
    if parts is not None:
        return all(item != text and _is_comparable(item) for item in parts.items)
    if _PROSE.fullmatch(text):
        return len(text.split()) <= MAX_PROSE_WORDS
    if read_amount(text) or _IN_BASE.fullmatch(text) or text in _READ_ALONE:
        return True
    if _SIGN.search(text):
        return all(map(_is_comparable, filter(None, _SIGN.split(text))))
    return same_formula(text, text) is True or _symbolic_equal(text, text)


def _equal(answer: str, gold: str, depth: int) -> bool:
    if not answer or not gold or depth > MAX_DEPTH:
        return False
    if compact(answer) == compact(gold):
        return True
    verdict = _as_amounts(answer, gold, depth)
    if verdict is not None:
        return verdict
    answer, gold = _without_unit(*_without_names(answer, gold))
    for stage in (_as_amounts, _as_words, _as_parts, _as_relations, _as_formulas):
        verdict = stage(answer, gold, depth)
        if verdict is not None:
            return verdict
    return depth == 0 and _symbolic_equal(answer, gold)


def _without_rounding(text: str) -> str:
    r"""`\sqrt{2}` of `\sqrt{2} \approx 1.41`; all of the text where one number is not the other one rounded."""
    exact, *others = split_top(text, r"\\approx(?![a-z])|≈") or [text]
    rounded = read_numeral(others[0]) if len(others) == 1 else None
    if rounded is None or (value := constant(_last_member(exact))) is None:
        return text
    rounded = replace(rounded, digits=ENOUGH_DIGITS, places=rounded.places or 0)
    return exact if agree(rounded, Numeral(value=value)) else text


def _without_unit(answer: str, gold: str) -> tuple[str, str]:
    """Drops a unit behind a constant as `12\\pi` where only one side has one, which stages would read as a factor.

    A gold's single letter stays: it may be a variable.
    """
    found = [leading_irrational(text) for text in (answer, gold)]
    units = ["" if number is None else rest.strip() for number, rest in found]
    unit = "".join(units)
    if all(units) or len(units[1]) == 1 or not (_UNITS.fullmatch(unit) or (unit and unit_of(unit))):
        return answer, gold
    return answer.removesuffix(units[0]).strip(), gold.removesuffix(units[1]).strip()


def _without_names(answer: str, gold: str) -> tuple[str, str]:
    """Drops `x =` where only one side has it or both have the same, and all but the end of a chain `a = b = c`."""
    answer, gold = (
        named[2] if (named := _NAMED.fullmatch(text)) and _BRACED.fullmatch(named[2]) else text
        for text in (answer, gold)
    )
    if any((parts := parts_of(text)) and parts.kind == "set" for text in (answer, gold)):
        return answer, gold
    answer, gold = (_NAME_LAST.sub(r"\2 = \1", text) for text in (answer, gold))
    named_answer, named_gold = _NAMED.fullmatch(answer), _NAMED.fullmatch(gold)
    if named_answer and named_gold and compact(named_answer[1]) == compact(named_gold[1]):
        return _last_member(named_answer[2]), _last_member(named_gold[2])
    given, wanted = relation_of(answer), relation_of(gold)
    if wanted and named_answer and compact(named_answer[1]) == wanted.variable:
        return _last_member(named_answer[2]), gold  # `x \in (2, \infty)` is `x > 2`
    if given and named_gold and r"\in" in gold and compact(named_gold[1]) == given.variable:
        return _last_member(named_gold[2]), answer  # and the reverse
    if not _SIGN.search(gold) and not named_gold:
        return _last_member(named_answer[2] if named_answer else answer), gold
    if named_gold and not _SIGN.search(answer):
        return answer, _last_member(named_gold[2])
    members = split_top(gold, "=") or []
    if len(members) > 1 and not _SIGN.search(answer) and None not in map(constant, members):
        return answer, members[-1]  # of `5*3 = 15`
    return answer, gold


def _last_member(text: str) -> str:
    return (split_top(text, "=") or [text])[-1]


def _as_amounts(answer: str, gold: str, depth: int) -> bool | None:
    given, expected = read_amount(answer), read_amount(gold)
    if given and expected:
        return same_amount(given, expected)
    digits, wanted = _IN_BASE.fullmatch(answer), _IN_BASE.fullmatch(gold)
    if wanted:  # the problem says in which base, so the answer may leave it out
        return digits.groups() == wanted.groups() if digits else compact(answer) == wanted[1]
    if digits and re.search("[A-F]", gold):  # digits that are none of base ten
        return compact(gold) == digits[1]
    return False if digits else None


def _as_words(answer: str, gold: str, depth: int) -> bool | None:
    one, other = _LETTER.fullmatch(answer), _LETTER.fullmatch(gold)
    if one and other:
        return one[1] == other[1]
    if not _PROSE.fullmatch(gold):
        return None
    longest = max(map(len, re.findall(r"[A-Za-z]+", gold)))
    folded, wanted = (" ".join(text.casefold().replace(",", " ").split()) for text in (answer, gold))
    if folded == wanted and (longest > 2 or wanted == "no"):
        return True
    if any(mark in gold for mark in ("sqrt", ",", " and ")):  # a formula or a list in words
        return None
    return False if longest > 3 or (longest == 3 and _PROSE.fullmatch(answer)) else None


def _as_parts(answer: str, gold: str, depth: int) -> bool | None:
    parts, wanted = parts_of(answer), parts_of(gold)
    if parts and wanted:
        is_met = wanted.variable == parts.variable if wanted.variable else is_interval(wanted)
        return (is_met or not parts.variable) and _same_parts(parts, wanted, depth)
    alone = parts or wanted
    if alone is None or alone.variable:
        return None
    if alone.kind != "set" or len(alone.items) != 1:
        return False
    pair = (alone.items[0], gold) if parts else (answer, alone.items[0])
    return _equal(*pair, depth + 1)


def _same_parts(answer: Parts, gold: Parts, depth: int) -> bool:
    if len(answer.items) != len(gold.items):
        return False
    is_assigned = _is_assignment(answer, gold) or _is_assignment(gold, answer)
    if answer.kind != gold.kind:  # but `x = 1, y = 2` is `(1, 2)`
        names = [name[1] for item in answer.items + gold.items if (name := _NAMED.fullmatch(item))]
        is_point = {answer.kind, gold.kind} == {"set", "()"} and not gold.variable
        if not (is_point and is_assigned and names == sorted(names)):
            return False
    same = partial(_equal, depth=depth + 1)
    if is_assigned or gold.kind not in ("set", "union"):
        return all(map(same, answer.items, gold.items))
    left = list(gold.items)
    for item in answer.items:
        found = next((other for other in left if same(item, other)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is_assignment(named: Parts, bare: Parts) -> bool:
    """Whether one side names different variables, `x=1, y=2`, and the other has values alone, whose order counts."""
    names = [_NAMED.fullmatch(item) for item in named.items]
    # x_1 and x_2 are roots, in any order.
    variables = {compact(name[1]).partition("_")[0] for name in names if name}
    return all(names) and len(variables) > 1 and not any(map(_SIGN.search, bare.items))


def _as_relations(answer: str, gold: str, depth: int) -> bool | None:
    """Equations and inequalities are the same if one is a multiple of the other, by a negative number if turned.

    Where the gold is solved for its variable, so is a right answer: a multiple may be the problem itself.
    """
    signs, wanted = _SIGN.findall(answer), _SIGN.findall(gold)
    if len(signs) != 1 or len(wanted) != 1:
        return None if len(signs) == len(wanted) else False
    sides, wanted_sides = (tuple(part.strip() for part in _SIGN.split(text)) for text in (answer, gold))
    if _is_solved(wanted_sides) and not _is_solved(sides):
        return False
    factor = ratio((sides[0], sides[1]), (wanted_sides[0], wanted_sides[1]))
    if factor is None:
        return None
    turned = _FLIPPED[signs[0]] if factor < 0 else signs[0]
    return factor != 0 and turned == wanted[0]


def _is_solved(sides: Sequence[str]) -> bool:
    """Whether one side is a name and the other a constant."""
    one, other = sides
    return any(
        re.fullmatch(_NAME, name) and constant(value) is not None
        for name, value in ((one, other), (other, one))
    )


def _as_formulas(answer: str, gold: str, depth: int) -> bool | None:
    if _CONSTANT.search(answer) and _CONSTANT.search(gold):
        answer, gold = _CONSTANT.sub("+C", answer), _CONSTANT.sub("+C", gold)
    same = same_formula(answer, gold)
    if same:
        return True
    for formula, text in ((gold, answer), (answer, gold)):
        decimal = read_numeral(text)
        if decimal is not None and decimal.places is not None:
            value = constant(formula)
            return same if value is None else agree(decimal, Numeral(value=value))
    return same


_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+|[A-Za-z]+|[-+*/^_=<>|()\[\]{},.;&]")
_COMMANDS = re.compile(
    "frac sqrt pi sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp cup cap in "
    "notin subset subseteq emptyset setminus mathbb le ge ne pm lfloor rfloor lceil rceil min max "
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi varphi "
    "chi psi omega begin end circ det operatorname".replace(" ", "|")
)
_ENVIRONMENTS = ("matrix", "pmatrix", "bmatrix", "vmatrix", "cases", "array")
# latex2sympy passes other arguments to nsimplify, which parses what it guesses as Python
_WHOLE_CALL = re.compile(r"(?<![A-Za-z])\\?(?:gcd|lcm)\s*\(\s*[0-9]{1,15}(?:\s*,\s*[0-9]{1,15})*\s*\)")
_EXPANDED = re.compile(r"sin|cos|tan|cot|sec|csc|ln|log|exp|lfloor|lceil|min|max")
_EXPONENT = re.compile(r"\^\s*(?:\{[^{}]*\}|\\?[A-Za-z]+|[0-9]+)")


def _symbolic_equal(answer: str, gold: str) -> bool:
    """Whether math-verify finds two normalised formulas equal; False if one is not harmless or not readable."""
    if not (is_harmless(answer) and is_harmless(gold)):
        return False
    from math_verify import LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off, on purpose
    options = {
        "extraction_config": (LatexExtractionConfig(),),
        "fallback_mode": "no_fallback",
        "extraction_mode": "first_match",  # or the last fraction of a text that cannot be read counts alone
    }
    try:
        parsed_gold, parsed = (
            parse(f"\\boxed{{{text}}}", parsing_timeout=None, **options) for text in (gold, answer)
        )
        return bool(verify(parsed_gold, parsed, timeout_seconds=None))
    except Exception:  # a parser of another project failed on this text: it is no answer that can be read
        return False


def is_harmless(text: str) -> bool:
    """Whether math-verify evaluates a formula cheaply whatever it says."""
    if len(text) > MAX_CHARS:
        return False
    text = _WHOLE_CALL.sub("0", text)
    tokens = _TOKEN.findall(text)
    if len(tokens) > MAX_TOKENS or "".join(tokens) != re.sub(r"\s", "", text):
        return False
    depths = [*accumulate(((token in "([{") - (token in ")]}") for token in tokens), initial=0)]
    if depths[-1] != 0 or max(depths) > MAX_DEPTH:
        return False
    return all(map(_is_known, tokens)) and _exponents_are_small(text)


def _is_known(token: str) -> bool:
    if token[0] == "\\":
        return not token[1].isalpha() or _COMMANDS.fullmatch(token[1:]) is not None
    if token[0].isdigit():
        return len(token) <= MAX_LITERAL
    if not token.isalpha() or token in _ENVIRONMENTS:
        return True
    return len(token) <= MAX_WORD and token not in ("gcd", "lcm")


def _exponents_are_small(text: str) -> bool:
    """Every exponent is a flat group without a power in it, and their product stays small."""
    exponents = _EXPONENT.findall(text)
    literals = (max(1, int(literal)) for exponent in exponents for literal in re.findall(r"[0-9]+", exponent))
    most = MAX_EXPONENT_IN_FUNCTION if _EXPANDED.search(text) else MAX_EXPONENT
    if len(exponents) != text.count("^") or prod(literals) > most:
        return False
    return not any("^" in exponent[1:] for exponent in exponents)
