"""Compact families of rules: word lists under constraints, and box pushing and blickets, which no run ever trains."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from random import Random
from typing import Any, NamedTuple

from prorl.envs.base import Draft, ProceduralTask, draft

_VOCABULARY = (
    "ant ape arm axe bat bed bee bird boat bus cap cat corn cow cup dog door duck egg elk fan fig fish fox frog "
    "goat gum hat hen ice ink jam jar key kid kite lamp leaf log map milk moon mug nest net nut oak owl pan pig "
    "pot rain rat rope rug sea ship sun tea toad tree van wolf yak"
)
WORDS = tuple(_VOCABULARY.split())
SEPARATORS = " ;,/-"
AVOIDABLE = "abeginoprstu"  # letters so common in the vocabulary that a stock answer often breaks the rule

NAMING = ("start", "end", "has")  # these name a word, so no stock answer satisfies them
STYLING = ("no", "sorted", "caps", "sep")
HELD_OUT = ("len", "desc")
ORDERS = frozenset({"sorted", "desc"})

Constraint = tuple[str, str]


class Answer(NamedTuple):
    """A well-formed answer: vocabulary words as written, and what stands between them."""

    words: tuple[str, ...]
    separator: str


class WordLevel(NamedTuple):
    """What a level draws from: word counts, and how many constraints of each sort."""

    counts: tuple[int, ...]
    naming: tuple[int, ...]
    styling: tuple[int, ...]
    held_out: tuple[int, ...] = (0,)


WORD_LEVELS = (
    WordLevel((2, 3), (1,), (0,)),
    WordLevel((2, 3, 4), (1,), (1,)),
    WordLevel((3, 4, 5), (1, 2), (1, 2)),
    WordLevel((3, 4, 5), (2, 3), (3,)),
    WordLevel((2, 3, 4), (1,), (0, 1), (1,)),
)


class WordList(ProceduralTask):
    """`3 words: start dog, no e` asks for three words; the score is the share of the constraints that hold.

    Another number of words, a word outside the vocabulary or mixed separators score 0, so that a stock answer earns
    next to nothing. Constraints are read off a known solution. Two kinds appear out of domain only.
    """

    name, domain, levels, ood_levels = "word_list", "instruct", (1, 2, 3), (4, 5)

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (number of words, constraints). The working is the answer with only the named words in place."""
        kinds = _draw_kinds(rng, WORD_LEVELS[level - 1])
        words = _draw_words(rng, rng.choice(WORD_LEVELS[level - 1].counts), kinds)
        constraints = tuple((kind, _read_off(rng, kind, words)) for kind in kinds)
        named = {argument.split()[0] for kind, argument in constraints if kind in NAMING}
        given = dict(constraints)
        asked = ", ".join(" ".join(constraint).strip() for constraint in constraints)
        steps = " ".join(word if word in named else "_" for word in words)
        answer = given.get("sep", " ").join(words)
        answer = answer.upper() if "caps" in given else answer
        return draft(f"{len(words)} words: {asked}", (len(words), constraints), steps, answer)

    def score(self, payload: Any, answer: str) -> float:
        """The share of constraints satisfied; 0 unless the answer is the asked number of vocabulary words."""
        count, constraints = payload
        parsed = parse_answer(answer)
        if parsed is None or len(parsed.words) != count:
            return 0.0
        return sum(holds(constraint, parsed) for constraint in constraints) / len(constraints)


def parse_answer(text: str) -> Answer | None:
    """Vocabulary words with the same single separator between all of them; None for anything else."""
    gaps = {gap.strip() or " " for gap in re.findall(r"[^A-Za-z]+", text)} or {" "}
    words = tuple(re.split(r"[^A-Za-z]+", text))
    if len(gaps) > 1 or not gaps <= set(SEPARATORS) or not {word.lower() for word in words} <= set(WORDS):
        return None
    return Answer(words=words, separator=gaps.pop())


def holds(constraint: Constraint, answer: Answer) -> bool:
    """Whether a well-formed answer satisfies one constraint; the case of letters matters to `caps` only.

    Raises KeyError: a kind of constraint that does not exist.
    """
    kind, argument = constraint
    words = [word.lower() for word in answer.words]
    if kind == "has":
        word, times = argument.split()
        return words.count(word) == int(times)
    return {
        "start": words[0] == argument,
        "end": words[-1] == argument,
        "no": all(argument not in word for word in words),
        "sorted": words == sorted(words),
        "desc": words == sorted(words, reverse=True),
        "caps": all(word.isupper() for word in answer.words),
        "sep": answer.separator == argument,
        "len": all(str(len(word)) == argument for word in words),
    }[kind]


def _draw_kinds(rng: Random, level: WordLevel) -> list[str]:
    held_out = rng.sample(HELD_OUT, rng.choice(level.held_out))
    orders = ORDERS.intersection(held_out)
    styling = [kind for kind in STYLING if not (orders and kind in ORDERS)]
    naming = rng.sample(NAMING, rng.choice(level.naming))
    return naming + rng.sample(styling, rng.choice(level.styling)) + held_out


def _draw_words(rng: Random, count: int, kinds: list[str]) -> list[str]:
    vocabulary = WORDS
    if "len" in kinds:
        length = rng.choice((3, 4))
        vocabulary = tuple(word for word in WORDS if len(word) == length)
    while True:
        words = [rng.choice(vocabulary) for _ in range(count)]
        if "has" in kinds and rng.random() < 0.5:
            words[0] = words[-1]
        rng.shuffle(words)
        if ORDERS.intersection(kinds):
            words.sort(reverse="desc" in kinds)
        if "no" not in kinds or _avoided(words):
            return words


def _avoided(words: list[str]) -> list[str]:
    return [letter for letter in AVOIDABLE if not any(letter in word for word in words)]


def _read_off(rng: Random, kind: str, words: list[str]) -> str:
    """The argument with which the known solution satisfies a constraint of this kind."""
    if kind == "no":
        return rng.choice(_avoided(words))
    if kind == "sep":
        return rng.choice(SEPARATORS.strip())
    word = max(words, key=words.count)
    said = {"start": words[0], "end": words[-1], "has": f"{word} {words.count(word)}", "len": str(len(word))}
    return said.get(kind, "")


# box pushing

Cell = tuple[int, int]  # row, column
State = tuple[Cell, Cell]  # where the pusher and the box are

MOVES: Mapping[str, Cell] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


class BoxPushing(ProceduralTask):
    """`push o to x by UDLR: ..@.|.o..|.x..` asks for moves of `@` that bring o to x: `LD`.

    Rows are separated by `|`; at level 1 there is one row. Every move must be possible: inside the grid, and
    a box that is walked into must have room to move on. At the end the box must stand on the goal.
    """

    name, domain, levels, ood_levels = "box_pushing", "logic", (), (1, 2, 3)
    sizes = ((1, 16), (3, 6), (5, 5))  # rows and columns, by level
    max_moves = 100

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: ((rows, columns), (pusher, box), goal)."""
        size = rows, columns = self.sizes[level - 1]
        cells = list(product(range(rows), range(columns)))
        moves = None
        while moves is None:
            pusher, box, goal = rng.sample(cells, 3)
            moves = _shortest(size, (pusher, box), goal)
        marks = {pusher: "@", box: "o", goal: "x"}
        grid = "|".join(
            "".join(marks.get((row, column), ".") for column in range(columns)) for row in range(rows)
        )
        return draft(f"push o to x by UDLR: {grid}", (size, (pusher, box), goal), "", moves)

    def score(self, payload: Any, answer: str) -> float:
        """1 if all moves are possible and the last one leaves the box on the goal."""
        size, state, goal = payload
        text = answer.strip()
        if len(text) > self.max_moves or not set(text) <= set(MOVES):
            return 0.0
        for letter in text:
            state = move(size, state, letter)
            if state is None:
                return 0.0
        return float(state[1] == goal)


def move(size: Cell, state: State, letter: str) -> State | None:
    """The state after one move of the pusher, who pushes a box that stands in the way; None if impossible."""
    (row, column), box = state
    down, right = MOVES[letter]
    target = (row + down, column + right)
    pushed = (box[0] + down, box[1] + right) if target == box else box
    inside = all(0 <= r < size[0] and 0 <= c < size[1] for r, c in (target, pushed))
    return (target, pushed) if inside else None


def _shortest(size: Cell, start: State, goal: Cell) -> str | None:
    """A shortest solution by breadth-first search; None if there is none."""
    paths, waiting = {start: ""}, [start]
    for state in waiting:
        if state[1] == goal:
            return paths[state]
        for letter in MOVES:
            after = move(size, state, letter)
            if after is not None and after not in paths:
                paths[after] = paths[state] + letter
                waiting.append(after)
    return None


# blickets

Trial = tuple[str, int]  # objects on the machine, 1 if it was on


class Blicket(ProceduralTask):
    """Blicket machine: on (1) if at least one of the objects on it is a blicket, otherwise off (0).

    `blicket 1/0/?: AB=1 C=0 AD=0; A B D AC` shows three trials and asks about four sets of objects, one
    character each: `0100`. `?` stands for what the trials leave open. The outcomes are never all the same.
    """

    name, domain, levels, ood_levels = "blicket", "logic", (), (1, 2, 3)
    sizes = ((4, 3, 4), (5, 4, 5), (6, 5, 6))  # objects, trials and questions, by level

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (objects, trials, questions). Consistent: trials are observed on hidden blickets."""
        count, trial_count, question_count = self.sizes[level - 1]
        objects, answer = "ABCDEF"[:count], ""
        while len(set(answer)) < 2:
            blickets = set(rng.sample(objects, rng.randint(1, count // 2)))
            sets: dict[str, None] = {}  # different ones of one to three objects, in alphabetical order
            while len(sets) < trial_count + question_count:
                sets["".join(sorted(rng.sample(objects, rng.randint(1, 3))))] = None
            trials = tuple((chosen, lights(blickets, chosen)) for chosen in list(sets)[:trial_count])
            questions = tuple(sets)[trial_count:]
            answer = predict(objects, trials, questions)
        shown = " ".join(f"{chosen}={on}" for chosen, on in trials)
        asked = f"blicket 1/0/?: {shown}; {' '.join(questions)}"
        return draft(asked, (objects, trials, questions), "", answer)

    def score(self, payload: Any, answer: str) -> float:
        """1 if every question is answered by what all consistent hypotheses agree on."""
        return float(answer.strip() == predict(*payload))


def lights(blickets: set[str], chosen: str) -> int:
    """What the machine does with the chosen objects on it."""
    return int(not blickets.isdisjoint(chosen))


def predict(objects: str, trials: Sequence[Trial], questions: Iterable[str]) -> str:
    """For each question `1` or `0` if every hypothesis that explains the trials says so, `?` if they disagree."""
    subsets = (set(names) for size in range(len(objects) + 1) for names in combinations(objects, size))
    fitting = [guess for guess in subsets if all(lights(guess, chosen) == on for chosen, on in trials)]
    outcomes = ({lights(guess, chosen) for guess in fitting} for chosen in questions)
    return "".join("?" if len(outcome) > 1 else str(outcome.pop()) for outcome in outcomes)
