"""Number games: the given numbers, each once, and the exact target."""

import pytest

from prorl.envs.families.gym_scorers.arithmetic import countdown, twenty_four

GAME = {"answer": "", "metadata": {"numbers": [73, 85, 1, 42, 14, 49], "target": 179}}
CARDS = {"answer": "", "metadata": {"numbers": [5, 1, 2, 8]}}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("49*(85 - 1)/14 - 42 - 73", 1.0),
        ("-42 - 73 + 49*(85 - 1)/14", 1.0),
        ("-(42 + 73) + (49*(85 - 1)/14)", 1.0),
        ("179", 0.0),
        ("49*(85 - 1)/14 - 42", 0.0),
        ("49*(85 - 1)/14 - 42 - 73 + 1 - 1", 0.0),
        ("__import__('os').system('true')", 0.0),
        ("9**9**9**9", 0.0),
        ("", 0.0),
        ("-", 0.0),
    ],
)
def test_countdown(answer, score):
    assert countdown(GAME, answer) == score


def test_twenty_four_must_use_the_cards():
    assert twenty_four(CARDS, "8*(5*1 - 2)") == 1.0
    assert twenty_four(CARDS, "6*4*1*1") == 0.0  # the library accepts any four small numbers
    assert twenty_four(CARDS, "8*5*1/2") == 0.0


def test_a_near_miss_is_not_24():
    thirds = {"answer": "", "metadata": {"numbers": [7, 7, 2, 1]}}
    assert twenty_four(thirds, "7*7/2*1") == 0.0  # 24.5, which the library truncates
