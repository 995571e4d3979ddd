"""Numerals: value, and what a decimal stands for. Quantities: units, conversion, tolerance, and what is missing."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.verifiers.latex import agree, leading_numeral, read_numeral
from prorl.envs.verifiers.quantity import quantity_equal, read_quantity, unit_of

UNITS = ["m", "km/h", "N", "kJ/mol", "g/cm^3", "Ω", "µF", "mol/L", "W/(m^2 K)", "eV", "rad/s", "m s^-2"]


@pytest.mark.parametrize(("one", "other"), [
    ("N", "kg*m/s^2"), ("N", "kg m s^{-2}"), ("N", "kg m s⁻²"), ("N", r"\mathrm{kg\cdot m/s^2}"), ("J", "N·m"),
    ("J", "Nm"), ("Pa", "N/m2"), ("W", "J s-1"), ("Ω", "V/A"), ("ohm", r"\Omega"), ("µm", r"\mu m"), ("μs", "us"),
    ("L", "dm^3"), ("mL", "cm3"), ("M", "mol/L"), ("W/(m^2 K)", "W m^-2 K^-1"), ("J/(kg·K)", "J/kg/K"),
    ("m/s", "meters per second"), ("km", "kilometers"), ("s^-1", "1/s"), ("°", "degrees"), ("ft", "feet"),
    (r"^\circ\text{C}", "°C"), ("m^2", "square meters"), ("cm^3", "cubic centimetres"), ("kWh", "kW h"),
])  # fmt: skip
def test_spellings_of_one_unit(one, other):
    assert unit_of(one) == unit_of(other) is not None


@pytest.mark.parametrize("text", [
    "", "x", "kmeter", "mm mi/", "m//s", "/s", "m^", "(m", "m)", "m^99", "kmin", "5", "m+s", "meow", "mkg", "m" * 99,
    "^2", "*", "()", "m()",
])  # fmt: skip
def test_what_is_no_unit(text):
    assert unit_of(text) is None


@pytest.mark.parametrize(("answer", "gold"), [
    (r"\lambda = 500\text{ nm}", "500 nm"), ("500 nm", r"\lambda = 500\text{ nm}"), ("KE = 5 J", "5 J"),
    (r"\Delta H = -5 \text{ kJ}", "-5 kJ"), (r"2.998\times10^8", r"3\times10^8"), ("2.998e8", "3e8"),
    ("500 g", "0.5 kg"), ("36 km/h", "10 m/s"), (r"1.0\times10^{3}\ \text{V}", "1 kV"), ("25 °C", "298.15 K"),
    ("77 °F", r"25\,^\circ\mathrm{C}"), ("v = 12 m/s", r"12\ \mathrm{m\,s^{-1}}"), ("4 J/(g K)", "4000 J/(kg K)"),
    ("90°", "1.5708 rad"), ("50%", "0.5"), ("0.5", "50 %"), ("1/2 A", "500 mA"), ("1 500 Pa", "1.5 kPa"),
    ("9.81 m/s^2", "9.8 m/s²"), ("3", "3"), ("3.14", "3.1416"), ("12 m", "12"), ("1 eV", "1.6e-19 J"),
    ("5 ms^{-1}", "5 m/s"), ("9.8 m/s^2", "9.8 ms^-2"), (r"\pi/4 rad", "45°"), (r"2\pi", "6.283"),
    ("1.414 m", r"\sqrt2 \text{ m}"), ("2345.67 dollars", "2345.67 dollars"), (r"\$2345.67", "2345.67 dollars"),
    ("70 dB", "70 dB"), ("70", "70 dB"), ("pH 2", "pH = 2.0"), ("2", "pH 2"), ("3 apple", "3 apples"),
    ("3 apples", "3"), ("50%", "50"), ("5 thousand", "5000"),
    ("5 lb", "5 lbs"), ("2.268 kg", "5 lbs"), ("180 min", "3 hrs"), ("3 hours", "3 hrs"),
    ("10^{-3}", "0.001"), (r"10^{-3}\text{ m}", "1 mm"), ("0.001", "10^{-3}"), (r"10^5\ \text{Pa}", "100 kPa"),
    (r"9.8 \frac{m}{s^2}", "9.8 m/s^2"), (r"5\ \frac{\text{m}}{\text{s}}", "5 m/s"), ("-1.86 K/m", "-1.86 °C/m"),
    (r"4.18 \text{ J/(g}\cdot^\circ\text{C)}", "4.18 J/(g·K)"),
    ("10 °C", "10 °C"), ("10°", "10°"), ("283.15 K", "10 °C"), (r"-10^\circ\text{C}", "-10 °C"), ("5 nm", "5nm"),
    ("5 Rs", "5"), ("5 ml of water", "5"), ("70dB", "70"), ("250mg", "0.25 g"), ("5 kg", "5 Kg"),
    ("1 atm", "760 mm Hg"), ("2 atm", "2 atmospheres"), ("25 °C", "25 degrees C"),
    ("298.15 K", "25 deg C"), (r"5\,\mathrm{k}\Omega", "5000 Ω"), ("5 MΩ", r"5\,\mathrm{M}\Omega"),
    ("10 m/s", "36 kmph"), ("10 gm", "0.01 kgs"), ("5 microns", "5 µm"), ("1 KHz", "1000 hz"), ("1 eV", "1 ev"),
    ("746 W", "1 horsepower"), ("16 oz", "1 lb"), ("1.67 x 10^{-27} kg", r"1.67\times10^{-27}\text{ kg}"),
])  # fmt: skip
def test_equal_quantities(answer, gold):
    assert quantity_equal(answer, gold)


@pytest.mark.parametrize(("answer", "gold"), [
    ("12", "12 m"), ("12 m", "12 s"), ("12 m", "12 cm"), ("12 cm", "12 m"), ("m", "12 m"), ("", "12 m"), ("12 m", ""),
    ("12.5 m", "12 m"), ("101", "100"), ("12 13 m", "12 m"), ("12 m 1", "12 m"), ("26 °C", "25 °C"),
    ("298 °C", "298 K"), ("1e400 m", "1 m"), ("nan m", "1 m"), ("3*4 m", "12 m"), ("-12 m", "12 m"), ("12 M", "12 m"),
    ("0.001", "0"), ("5 Hz", "5 rad/s"), ("4 apples", "3 apples"), ("3 pears", "3 apples"), ("3 m", "3 apples"),
    ("3 apples", "3 m"), ("5 dozen", "5"), ("5 ms", "5 m/s"), ("0.5", "50"), ("12 thousand", "12"),
    ("5 twelfths", "5"), ("5 below", "5"), ("5", "5 Kg"), ("760", "760 mm Hg"), ("2", "2 atmospheres"), ("5", "5 KW"),
    (r"\pi m", "3.14 s"), (r"\sqrt", "3"), ("10^2", "10"), ("20 K", "20 °C"), (r"5 \frac{s}{m}", "5 m/s"),
])  # fmt: skip
def test_different_quantities(answer, gold):
    assert not quantity_equal(answer, gold)


@given(st.sampled_from(UNITS), st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000))
def test_a_quantity_equals_itself_in_si_units_and_in_no_other_kind(name, value):
    unit = unit_of(name)
    written = f"{value.numerator}/{value.denominator} {name}"
    assert quantity_equal(written, written)
    assert read_quantity(written).in_unit(unit) == value
    assert all(
        quantity_equal(written, f"1 {other}") is False for other in UNITS if other != name and value != 1
    )


@given(st.sampled_from(UNITS), st.integers(1, 10**6), st.integers(-30, 30))
def test_the_tolerance_is_relative_to_the_gold_in_its_own_unit(name, value, per_mille):
    answer = Fraction(value * (1000 + per_mille), 1000)
    written = f"{answer.numerator}/{answer.denominator} {name}"
    assert quantity_equal(written, f"{value} {name}") == (abs(per_mille) <= 10)


@pytest.mark.parametrize(("text", "value"), [
    ("12", 12), ("-0.5", Fraction(-1, 2)), ("1,234.5", Fraction(2469, 2)), (".25", Fraction(1, 4)), ("7.", 7),
    ("3/4", Fraction(3, 4)), (r"-\frac{3}{4}", Fraction(-3, 4)), ("0.5/2", Fraction(1, 4)), ("2 1/3", Fraction(7, 3)),
    (r"-2\frac{1}{3}", Fraction(-7, 3)), ("6.02e23", 602 * 10**21), ("2*10^{-3}", Fraction(1, 500)),
    ("2 * 10^3", 2000), ("1,000,000", 10**6), (r"0.1\overline{6}", Fraction(1, 6)),
    (r".\overline{27}", Fraction(3, 11)),
])  # fmt: skip
def test_values_by_hand(text, value):
    assert read_numeral(text).value == value


@pytest.mark.parametrize("text", [
    "", "-", "x", "2x", "1/0", r"\frac{1}{0}", "2+3", "1,23,456", "12 34", r"2\frac{3}{2}", "2 3/2", "5!", "0x10",
    "١٢", "1e9999", "9" * 400, "1_000", "inf", "nan", "--3",
])  # fmt: skip
def test_what_is_no_numeral(text):
    assert read_numeral(text) is None


def test_what_follows_a_numeral_is_given_back():
    numeral, rest = leading_numeral("12.5 km")
    assert (numeral.value, rest) == (Fraction(25, 2), " km")


@given(st.fractions(), st.integers(1, 12))
def test_a_rounded_decimal_agrees_from_six_significant_digits_on(value, places):
    scaled = round(value * 10**places)
    text = f"{'-' if scaled < 0 else ''}{abs(scaled) // 10**places}.{abs(scaled) % 10**places:0{places}d}"
    decimal, exact = read_numeral(text), read_numeral(f"{value.numerator}/{value.denominator}")
    exact_decimal = decimal.value == value
    assert agree(decimal, exact) == (exact_decimal or len(str(abs(scaled))) >= 6)
    assert agree(decimal, exact) == agree(exact, decimal)
