"""Mathematical answers: properties of equality, bombs, gold answers that can be verified, and speed of the usual."""

import signal
import threading
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.extract import last_box
from prorl.envs.verifiers.latex import normalised
from prorl.envs.verifiers.math import gold_verifies, is_harmless, math_equal
from support.timing import cpu_seconds

rationals = st.fractions(min_value=-1000, max_value=1000, max_denominator=60)
FORMULAS = [
    r"\frac{x+1}{2}", r"2\sqrt{3}", "x^2-1", r"\frac{\pi}{6}", "a+bc", r"e^{-x}", r"\ln(1+x)", r"n(n+1)/2", "-x",
]  # fmt: skip

BOMBS = [
    "9^{9^{9^9}}", "10^{10^9}", "9**9**9**9", "10000000!", "((9!)!)!", "5!!!!!!!!", "(x+1)^{100000}",
    "(a+b+c+d+e+f+g)^{60}", "(" * 3000 + "x" + ")" * 3000, "(" * 140 + "x" + ")" * 140,
    "{" * 140 + "x" + "}" * 140, r"\sqrt{" * 45 + "2" + "}" * 45, r"\frac{1}{" * 30 + "2" + "}" * 30,
    "|" * 250, "-" * 299 + "1", "9" * 5000, "9" * 299, "0." + "1" * 290, "1e999999999", "1e999", "10^{999}",
    r"\binom{10000000}{5000000}", r"\sum_{k=1}^{10^{9}} k", r"\prod_{k=1}^{1000000} k",
    r"\int_0^{10^9} e^{x^2} dx", r"\lim_{x\to 0} \sin(x)/x",
    r"\begin{pmatrix}" + "1&" * 120 + r"1\end{pmatrix}", ",".join("x" * 140), "(" * 60 + "1,2" + "),3" * 60,
    r"\{" * 60 + "1" + r"\}" * 60, r"\sin " * 55 + "x", "x^" * 140 + "x", "2^{2^{2^{2^{2^{2}}}}}", "1/(1-1)",
    "0^{-1}", r"\log 0", r"\tan(90^\circ)",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The first symbolic comparison imports sympy."""
    math_equal(r"\gcd(4,6)", "2")


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:24])
@pytest.mark.parametrize("gold", ["42", r"x^2+\sqrt{2}", "(1, 2)", "2x+y=3"])
def test_bombs_are_wrong_in_no_time(bomb, gold):
    verdicts = []
    assert cpu_seconds(lambda: verdicts.append(math_equal(bomb, gold)), enough=0.5) < 0.5
    assert not any(verdicts)


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:24])
def test_a_bomb_as_gold_equals_itself_and_no_number(bomb):
    assert math_equal(bomb, f" {bomb}")
    assert not math_equal("42", bomb)


@given(rationals)
def test_a_fraction_equals_its_other_spellings(value):
    top, bottom = value.numerator, value.denominator
    spellings = [f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}", rf"$ x = \dfrac{{{top}}}{{{bottom}}}$."]
    for spelling in spellings:
        assert math_equal(spelling, f"{top}/{bottom}")
        assert not math_equal(spelling, f"{top + 1}/{bottom}")


@given(rationals, rationals)
def test_plain_numbers_are_equal_exactly_where_their_values_are(one, other):
    for strict in (True, False):
        assert math_equal(str(one), str(other), allow_unevaluated=strict) == (one == other)


@given(st.integers(-(10**12), 10**12), st.integers(0, 8))
def test_a_decimal_is_the_fraction_that_it_spells(digits, places):
    value = Fraction(digits, 10**places)
    written = f"{'-' if digits < 0 else ''}{abs(digits) // 10**places}.{abs(digits) % 10**places:0{places}d}"
    assert math_equal(written, f"{value.numerator}/{value.denominator}")
    assert math_equal(f"{digits:,}", str(digits))


@given(st.lists(rationals, min_size=2, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_lists_have_no_order_and_tuples_have(values, rng):
    mixed = list(values)
    rng.shuffle(mixed)
    listed, shuffled = (", ".join(map(str, each)) for each in (values, mixed))
    assert math_equal(shuffled, listed)
    assert math_equal(rf"\{{{shuffled}\}}", listed)
    assert math_equal(f"({shuffled})", f"({listed})") == (mixed == values)
    assert not math_equal(", ".join(map(str, values[1:])), listed)


@given(st.sampled_from(FORMULAS), st.sampled_from(FORMULAS))
def test_formulas_equal_their_transforms_and_nothing_else(one, other):
    assert math_equal(f"2({one})-({one})", one)
    assert math_equal(f"({one})({other})", f"({other})*({one})")
    assert math_equal(one, other) == (one == other)
    assert not math_equal(f"{one}+1", one)


@pytest.mark.parametrize(
    "text", [r"\gcd(\sqrt{6}, 2)", r"gcd(\sqrt{6}, 2)", r"\operatorname{lcm}(1.5, 2)", "5!", "2^{2^2}"]
)
def test_what_math_verify_never_sees(text):
    assert not is_harmless(normalised(text))


def test_no_timer_of_the_caller_is_touched_and_other_threads_may_ask():
    fired = []
    before = signal.signal(signal.SIGALRM, lambda *_: fired.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 30)
        assert math_equal(r"\gcd(4,6)", "2")
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        assert signal.getsignal(signal.SIGALRM) is not before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(math_equal(r"\gcd(4, 10)", "2")))
    thread.start()
    thread.join()
    assert answers == [True]


@pytest.mark.parametrize(
    "gold",
    [
        "5", "142.0", r"\frac{3}{4}", "50%", r"5\text{ cm}", r"\text{Tuesday}", "Yes", "(1,2)", "[0, 1)", "5, 6, 7",
        r"(-\infty,1)\cup(2,\infty)", r"3 \pm \sqrt{2}", r"\begin{pmatrix}1\\2\end{pmatrix}", "x^2+1", "y=2x+1",
        r"90^\circ", "1010_2", r"\$5", "C", r"x \ge 3", r"\binom{20}{10}", r"2^{2024}-1", "2:3", r"\lfloor x \rfloor",
    ],
)  # fmt: skip
def test_golds_of_every_kind_verify(gold):
    assert gold_verifies(gold)
    assert math_equal(gold, gold)


@pytest.mark.parametrize(
    "gold",
    [
        "", "  ", "}{", "5}", "{5", "The proof follows by induction on n and the claim.", "x" * 400, "$$",
        "\\text{}",
    ],
)  # fmt: skip
def test_golds_that_nothing_can_meet_do_not(gold):
    assert not gold_verifies(gold)


def test_a_space_may_stand_between_the_box_and_its_brace():
    assert last_box("so \\boxed {5} and then \\boxed\n{6}") == "6"
    assert last_box("\\boxed 5") is None
