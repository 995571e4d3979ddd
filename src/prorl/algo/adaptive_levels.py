"""Which difficulty levels of a task are drawn, as the policy grows (RLVE, https://arxiv.org/abs/2511.07317)."""

from collections.abc import Sequence


def level_weights(
    levels: Sequence[int], highest: int, *, window: int, replay: float
) -> tuple[tuple[int, float], ...]:
    """How often each level up to the highest in play is drawn, lowest first; the weights sum to 1.

    The `window` highest share 1 - `replay` of the draws equally, and all of them `replay`, so that what was learned
    is not lost.
    """
    played = [level for level in levels if level <= highest]
    newest = set(played[-window:])
    return tuple(
        (level, replay / len(played) + (1 - replay) / len(newest) * (level in newest)) for level in played
    )


def remembered(recent: Sequence[tuple[int, float]], most: int) -> tuple[tuple[int, float], ...]:
    """What `is_mastered` is asked about, with one entry fewer if there are more than `most`.

    Of the older half the two neighbours of fewest rollouts become one. So any number of rollouts is reached, however
    few a step brings.
    """
    if len(recent) <= most:
        return tuple(recent)
    old, new = recent[: -(most // 2)], recent[-(most // 2) :]
    at = min(range(len(old) - 1), key=lambda place: old[place][0] + old[place + 1][0])
    (first, one), (second, other) = old[at : at + 2]
    joined = (first + second, (first * one + second * other) / max(1, first + second))
    return (*old[:at], joined, *old[at + 2 :], *new)


def is_mastered(recent: Sequence[tuple[int, float]], *, rollouts: int, raise_at: float) -> bool:
    """Whether the newest judged rollouts of the highest level, at least so many, have a mean score of `raise_at`.

    `recent` are (rollouts, mean score) of the steps since the level was reached, or of several, the newest last.
    """
    count, total = 0, 0.0
    for judged, score in reversed(recent):
        count += judged
        total += judged * score
        if count >= rollouts:
            return total >= raise_at * count
    return False
