"""The last resort: math-verify, for the few short answers that nothing before it can read.

Only what passes `is_harmless` gets there: short, shallow, of known commands, without operations whose evaluation
can explode (towers, factorials, sums, integrals). math-verify's own timeouts stay off: they cancel the caller's
timers and raise a BaseException; the judge's deadline stands outside. Only its LaTeX reader is used: the other one
evaluates text by `sympy.parse_expr`, which is Python's `eval`.
"""

from __future__ import annotations

import logging
import re

MAX_CHARS = 300  # what is parsed at most; the tail alone of a longer answer would be another answer
MAX_TOKENS = 60
MAX_DEPTH = 4
MAX_EXPONENT = 20
MAX_LITERAL = 15  # digits

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+|[A-Za-z]+|[-+*/^_=<>|()\[\]{},.;&]")
_COMMANDS = frozenset(
    re.findall(
        r"\w+",
        "frac sqrt pi sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp infty cup cap in "
        "notin subset subseteq emptyset setminus mathbb le ge ne pm lfloor rfloor lceil rceil min max "
        "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi varphi "
        "chi psi omega begin end circ det operatorname",
    )
)
_ENVIRONMENTS = ("matrix", "pmatrix", "bmatrix", "vmatrix", "cases", "array")
_MAX_WORD = 3  # letters in a row; longer ones are text, unless they name an environment
# latex2sympy passes other arguments to nsimplify, which parses what it guesses as Python
_WHOLE_CALL = re.compile(r"(?<![A-Za-z])\\?(?:gcd|lcm)\s*\(\s*[0-9]{1,15}(?:\s*,\s*[0-9]{1,15})*\s*\)")
_EXPONENT = re.compile(r"\^\s*(?:\{[^{}]*\}|\\?[A-Za-z]+|[0-9]+)")


def symbolic_equal(answer: str, gold: str) -> bool:
    """Whether math-verify finds two normalised formulas equal; False if one is not harmless or not readable.

    Raises:
        ImportError: math-verify is not installed, which is no fault of the answer.
    """
    if not (is_harmless(answer) and is_harmless(gold)):
        return False
    from math_verify import LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off, on purpose
    latex_only = (LatexExtractionConfig(),)
    try:
        parsed_gold, parsed = (
            parse(
                f"\\boxed{{{text}}}",
                extraction_config=latex_only,
                fallback_mode="no_fallback",
                parsing_timeout=None,
            )
            for text in (gold, answer)
        )
        return bool(verify(parsed_gold, parsed, timeout_seconds=None))
    except Exception:  # a parser of another project failed on this text: it is no answer that can be read
        return False


def is_harmless(text: str) -> bool:
    """Whether evaluating the formula is cheap whatever it says: a bound on its size, not on its meaning."""
    if len(text) > MAX_CHARS:
        return False
    text = _WHOLE_CALL.sub("0", text)
    tokens = _TOKEN.findall(text)
    if len(tokens) > MAX_TOKENS or "".join(tokens) != re.sub(r"\s", "", text):
        return False
    return all(map(_is_known, tokens)) and _depth(tokens) <= MAX_DEPTH and _exponents_are_small(text)


def _is_known(token: str) -> bool:
    if token[0] == "\\":
        return token[1:] in _COMMANDS or not token[1].isalpha()
    if token[0].isdigit():
        return len(token) <= MAX_LITERAL
    return (
        not token.isalpha()
        or token in _ENVIRONMENTS
        or (len(token) <= _MAX_WORD and token not in ("gcd", "lcm"))
    )


def _depth(tokens: list[str]) -> int:
    depth = deepest = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        deepest = max(deepest, depth)
    return deepest if depth == 0 else MAX_DEPTH + 1


def _exponents_are_small(text: str) -> bool:
    """Every exponent is a flat group without a power in it, and their product stays small."""
    exponents = _EXPONENT.findall(text)
    if len(exponents) != text.count("^"):
        return False
    product = 1
    for exponent in exponents:
        for literal in re.findall(r"[0-9]+", exponent):
            product *= max(1, int(literal))
    return product <= MAX_EXPONENT and not any("^" in exponent[1:] for exponent in exponents)
