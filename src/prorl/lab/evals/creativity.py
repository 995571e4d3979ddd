"""The creativity index: how much of what a model writes could not be pieced together from a reference corpus.

L-uniqueness of a text is the share of its words that lie in no sequence of L or more words that the corpus holds; the
index is its sum over a range of L (Lu et al. 2024, "AI as Humanity's Salieri", https://arxiv.org/abs/2410.04265).
Invariant: of a problem's stored responses only the first ones count. A further one is stored because it passed, and
models that pass at different rates would be compared by different choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from pydantic import TypeAdapter

from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError, encode_json, write_atomic
from prorl.envs.seeds import derive, purpose
from prorl.lab.evals.corpus import DEPTH, Advance, Corpus, Ids, longest_matches
from prorl.lab.evals.evaluation_store import Evaluation
from prorl.lab.evals.statistics import MEAN, curve, grouped
from prorl.rollout.validation import KEPT, ProblemResult

Values = Mapping[tuple[str, str, int, int], tuple[ProblemResult, float]]
"""By key of a problem: the mean index of its responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The lengths of the word sequences that are looked for, in words."""

    shortest: int = 5
    longest: int = 12

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest <= DEPTH:
            raise ProrlError(
                f"sequences of {self.shortest} to {self.longest} words cannot be looked for: choose two lengths, "
                f"the smaller one first, between 1 and {DEPTH}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """The responses of one model that were counted."""

    model: str
    step: int | None
    counted: int
    short: int  # of fewer words than the shortest sequence: they have no index and are not counted
    words: float  # per counted response
    floor: float  # mean index of the counted ones if the corpus held them all: no text holds a sequence of more words


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over problems with the ends of its 95 % interval: a bootstrap, each domain resampled by itself."""

    problems: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The creativity index of one model on the problems of one part and domain."""

    part: str
    domain: str
    model: str
    index: Estimate
    gain: Estimate | None  # over the first model, on the problems that both have an index for


@dataclass(frozen=True, slots=True, kw_only=True)
class Creativity:
    """Models side by side against one corpus: the first is the one that the others are compared with."""

    corpus: str
    corpus_documents: int
    corpus_words: int
    lengths: Lengths
    models: tuple[Responses, ...]
    rows: tuple[Row, ...]  # by part, then domain, the mean last, then in the order of the models


def uniqueness(matches: Ids, length: int) -> float:
    """L-uniqueness of a text from the longest match at each of its words, for L = `length`.

    A longer sequence holds one of exactly L words around each of its words, so these are all that is to be seen.

    Raises:
        ValueError: the text has no words.
    """
    if not matches.size:
        raise ValueError("a text without words has no uniqueness")
    found = np.concatenate([[0], np.cumsum(matches >= length)])
    ends = np.arange(1, len(matches) + 1)
    covered = found[ends] > found[np.maximum(ends - length, 0)]
    return float(1 - covered.mean())


def creativity_index(matches: Ids, lengths: Lengths) -> float:
    """The sum of L-uniqueness over the lengths, from 0 (all of it is in the corpus) to how many lengths there are."""
    return math.fsum(uniqueness(matches, length) for length in range(lengths.shortest, lengths.longest + 1))


def compare_creativity(
    evaluations: Sequence[Evaluation],
    corpus: Corpus,
    *,
    lengths: Lengths,
    advance: Advance = lambda _what, _done: None,
) -> Creativity:
    """The creativity index of every model, and the gains of the others over the first.

    `advance(what, done)` reports progress in reading the corpus.

    Raises:
        ProrlError: two models of one name, one without a response that is long enough, or no usable corpus.
    """
    for name, several in grouped(evaluations, lambda one: one.model).items():
        if len(several) > 1:
            raise ProrlError(
                f"two evaluations of {name} cannot be told apart: compare each with another model"
            )
    asked = [
        [(problem, one.text) for problem in evaluation.problems for one in problem.kept if one.sample < KEPT]
        for evaluation in evaluations
    ]
    found = longest_matches([text for of_model in asked for _, text in of_model], corpus, advance)
    matches = iter(found.lengths)
    models: list[Responses] = []
    values: dict[str, Values] = {}
    for evaluation, of_model in zip(evaluations, asked, strict=True):
        matched = [(problem, next(matches)) for problem, _ in of_model]
        counted = [(problem, at_words) for problem, at_words in matched if at_words.size >= lengths.shortest]
        if not counted:
            raise ProrlError(
                f"{evaluation.model} has no kept response of {lengths.shortest} words or more, so it has no "
                "creativity index: look for shorter sequences"
            )
        values[evaluation.model] = {
            key: (several[0][0], fmean(creativity_index(at_words, lengths) for _, at_words in several))
            for key, several in grouped(counted, lambda one: one[0].key).items()
        }
        models.append(
            Responses(
                model=evaluation.model,
                step=evaluation.step,
                counted=len(counted),
                short=len(matched) - len(counted),
                words=fmean(at_words.size for _, at_words in counted),
                floor=fmean(max(0, lengths.longest - at_words.size) for _, at_words in counted),
            )
        )
    return Creativity(
        corpus=corpus.name,
        corpus_documents=found.documents,
        corpus_words=found.words,
        lengths=lengths,
        models=tuple(models),
        rows=tuple(_rows(values)),
    )


def write_creativity(path: Path, creativity: Creativity) -> None:
    """Store the comparison as JSON, whole or not at all."""
    write_atomic(path, encode_json(asdict(creativity), indent=1))


def read_creativity(path: Path) -> Creativity:
    """What `write_creativity` stored.

    Raises:
        StorageError: the file is missing, damaged or something else.
    """
    try:
        return TypeAdapter(Creativity).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} cannot be read ({error}); delete it and run `prorl creativity` again"
        ) from error


def _rows(models: Mapping[str, Values]) -> Iterator[Row]:
    first = next(iter(models.values()))
    problems = [one for values in models.values() for one, _ in values.values()]
    for part, of_part in grouped(problems, lambda one: one.part).items():
        for name in dict.fromkeys([*(one.domain for one in of_part), MEAN]):
            seed = derive(0, "creativity", purpose(part), name)
            for model, values in models.items():
                found = [
                    (one, value)
                    for one, value in values.values()
                    if one.part == part and name in (one.domain, MEAN)
                ]
                gains = [(one, value - first[one.key][1]) for one, value in found if one.key in first]
                index = _estimate(found, seed)
                gain = None if values is first else _estimate(gains, seed)
                if index is not None:
                    yield Row(part=part, domain=name, model=model, index=index, gain=gain)


def _estimate(found: Sequence[tuple[ProblemResult, float]], seed: int) -> Estimate | None:
    if not found:
        return None
    values_P1 = np.array([[value] for _, value in found])
    index = curve("", [one for one, _ in found], (1,), rates_PK=values_P1, seed=seed)
    domains = grouped(found, lambda one: one[0].domain).values()
    mean = fmean(fmean(value for _, value in of_domain) for of_domain in domains)
    return Estimate(problems=len(found), mean=mean, low=index.low[0], high=index.high[0])
