"""The creativity index: how much of what a model writes could not be pieced together from a reference corpus.

L-uniqueness of a text is the share of its words that lie in no sequence of L or more words that the corpus holds; the
index is its sum over a range of L (Lu et al. 2024, "AI as Humanity's Salieri", https://arxiv.org/abs/2410.04265).
Invariant: of a problem's stored responses only the first ones count. A further one is stored because it passed, and
models that pass at different rates would be compared by different choices.

The longest sequences that texts share with a corpus are found exactly. Every sequence of up to DEPTH words of the
texts gets a number, by that of its beginning and its last word. One pass over the corpus follows these numbers from
every position, in batches, so memory does not grow with the corpus. Words are compared and no hash of them. Array
names end in their axes: Q words of the texts, N words of a batch of the corpus, M positions of it that still match.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count, islice
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from prorl.build import mixture
from prorl.config.recipe import RecipeError
from prorl.config.schema import RunConfig
from prorl.envs.datasets.catalogue import Drop, file_rows
from prorl.envs.errors import ProrlError
from prorl.envs.extract import respond
from prorl.envs.files import StorageError, encode_json, write_atomic
from prorl.envs.mixture import MEAN
from prorl.envs.seeds import derive, purpose
from prorl.lab.evals.evaluation_store import MEASUREMENT, Evaluation, Subject, evaluations, read_evaluation
from prorl.lab.evals.problems import KEPT, ProblemResult
from prorl.lab.evals.statistics import curve
from prorl.lab.results import NAMES
from prorl.lab.tables import Cell, Number, Table
from prorl.lab.watch.console import Console
from prorl.rollout.pipeline import grouped
from prorl.run.layout import JOURNAL, require_run, run_folder
from prorl.run.store import RunStore

INDEX = "creativity.json"  # beside the models of an evaluation
PREFERRED = ("evaluation", MEASUREMENT)  # the evaluations of a run, the more thorough one first
DEPTH = 16  # words to which a match is followed
KINDS = (".txt", ".jsonl", ".parquet")
AT_A_TIME = 1 << 20  # words of the corpus that are searched together: bounds the memory

Ids = NDArray[np.int64]

# A tag such as <think> belongs to the format of a response: one word, or `</think><answer>` alone would be seven.
_WORD = re.compile(r"</?\w+>|[^\W_]+|[^\w\s]|_")


def split_words(text: str) -> Iterator[str]:
    """The words of a text: runs of letters and digits, tags, and every other visible character by itself.

    Upper and lower case are the same, and so are the ways in which Unicode spells one character.

    >>> list(split_words("<think>3*8 = 24</think> Done_now!"))
    ['<think>', '3', '*', '8', '=', '24', '</think>', 'done', '_', 'now', '!']
    """
    # No word spans two lines, and all words of a large document at once would take ten times its memory.
    for line in text.splitlines():
        yield from _WORD.findall(unicodedata.normalize("NFC", line.casefold()))


def documents_of(paths: Sequence[Path]) -> Iterable[str]:
    """The documents of files, and of all files below folders, that end in .txt, .jsonl or .parquet; read once.

    A text file is one document. In the others every row is one: its field or column `text`.
    """
    files = [file for path in paths for file in _files(path)]
    return chain.from_iterable(map(_documents, files))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix in KINDS and file.is_file())
    else:
        found = [path] if path.suffix in KINDS and path.is_file() else []
    if not found:
        raise ProrlError(
            f"there is no corpus {path}: name a file in {', '.join(KINDS)}, or a folder with some of these"
        )
    return found


def _documents(path: Path) -> Iterator[str]:
    if path.suffix == ".txt":
        try:
            yield path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ProrlError(f"cannot read {path} ({error}): write it in UTF-8") from None
        return
    for number, row in enumerate(file_rows(path), start=1):
        if isinstance(row, Drop) or "text" not in row or not isinstance(row["text"], str | None):
            raise ProrlError(f"row {number} of {path} has no field `text` that holds a text")
        if row["text"] is not None:
            yield row["text"]


def longest_matches(texts: Sequence[str], documents: Iterable[str]) -> tuple[list[Ids], int, int]:
    """Per text, for each word: how many from there on are in one document, up to DEPTH; never across documents.

    Also the numbers of documents and of words in them.
    """
    vocabulary: defaultdict[str, int] = defaultdict(count(1).__next__)
    ids_Q, spans = array("q"), []
    for text in texts:
        begin = len(ids_Q)
        ids_Q.extend(map(vocabulary.__getitem__, split_words(text)))
        spans.append(slice(begin, len(ids_Q)))
        ids_Q.append(0)
    sequences = _Sequences(ids_Q, len(vocabulary) + 1)
    batch, documents_read, words = array("q"), 0, 0
    for document in documents:
        before = len(batch)
        batch.extend(vocabulary.get(word, 0) for word in split_words(document))
        documents_read, words = documents_read + 1, words + len(batch) - before
        batch.append(0)
        if len(batch) > AT_A_TIME:
            sequences.find_in(batch)
            batch = array("q")
    sequences.find_in(batch)
    if not words:
        raise ProrlError("the corpus has no words: give one with text in it")
    lengths_Q = sequences.longest()
    return [lengths_Q[span] for span in spans], documents_read, words


class _Sequences:
    """The word sequences of texts, numbered from 1 for each length; 0 is none, as is a word of another text."""

    def __init__(self, ids_Q: array[int], size: int) -> None:
        self._size = size  # of the vocabulary
        padded_Q = _padded(ids_Q)
        names_Q = np.ones(len(ids_Q), np.int64)  # of the empty sequence
        # By length: the number of the beginning and the last word as one number, sorted; which were found; and the
        # sequence that begins at each word.
        self._levels: list[tuple[Ids, NDArray[np.bool_], Ids]] = []
        for width in range(DEPTH):
            next_Q = padded_Q[width : width + len(ids_Q)]
            key_Q = np.where((names_Q > 0) & (next_Q > 0), names_Q * size + next_Q, 0)
            keys = np.unique(np.append(key_Q, 0))
            names_Q = np.searchsorted(keys, key_Q)
            self._levels.append((keys, np.zeros(len(keys), bool), names_Q))

    def find_in(self, ids_N: array[int]) -> None:
        """Mark the sequences that a part of the corpus holds, given as words of the texts or 0."""
        padded_N = _padded(ids_N)
        at_M = np.flatnonzero(padded_N)
        names_M = np.ones_like(at_M)
        for width, (keys, found, _) in enumerate(self._levels):
            key_M = names_M * self._size + padded_N[at_M + width]
            place_M = np.minimum(np.searchsorted(keys, key_M), len(keys) - 1)
            same_M = keys[place_M] == key_M
            at_M, names_M = at_M[same_M], place_M[same_M]
            found[names_M] = True

    def longest(self) -> Ids:
        """The length of the longest sequence found at each word: where one is found, so is its beginning."""
        found_Q: Ids = np.sum([found[names_Q] for _, found, names_Q in self._levels], axis=0, dtype=np.int64)
        return found_Q


def _padded(ids: array[int]) -> Ids:
    return np.concatenate([np.asarray(ids, np.int64), np.zeros(DEPTH, np.int64)])


# -- the index

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
class Responses(Subject):
    """The responses of one model that were counted."""

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
    """L-uniqueness of a text from the longest match at each of its words, of which it has some, for L = `length`.

    A longer sequence holds one of exactly L words around each of its words, so these are all that is to be seen.
    """
    found = np.concatenate([[0], np.cumsum(matches >= length)])
    ends = np.arange(1, len(matches) + 1)
    covered = found[ends] > found[np.maximum(ends - length, 0)]
    return float(1 - covered.mean())


def creativity_index(matches: Ids, lengths: Lengths) -> float:
    """The sum of L-uniqueness over the lengths, from 0 (all of it is in the corpus) to how many lengths there are."""
    return math.fsum(uniqueness(matches, length) for length in range(lengths.shortest, lengths.longest + 1))


def compare_creativity(
    evaluations: Sequence[Evaluation], documents: Iterable[str], *, corpus: str, lengths: Lengths
) -> Creativity:
    """The creativity index of every model against a corpus, and the gains of the others over the first.

    Raises ProrlError: two models of one name, one without a response that is long enough, or no usable corpus.
    """
    name, times = Counter(one.model for one in evaluations).most_common(1)[0]
    if times > 1:
        raise ProrlError(f"two evaluations of {name} cannot be told apart: compare each with another model")
    asked = [
        [(problem, one.text) for problem in evaluation.problems for one in problem.kept if one.sample < KEPT]
        for evaluation in evaluations
    ]
    texts = [text for of_model in asked for _, text in of_model]
    found, documents_read, words = longest_matches(texts, documents)
    matches = iter(found)
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
        corpus=corpus,
        corpus_documents=documents_read,
        corpus_words=words,
        lengths=lengths,
        models=tuple(models),
        rows=tuple(_rows(values)),
    )


def write_creativity(path: Path, creativity: Creativity) -> None:
    """Store the comparison as JSON, whole or not at all."""
    write_atomic(path, encode_json(asdict(creativity), indent=1))


def read_creativity(path: Path) -> Creativity:
    """What `write_creativity` stored. Raises StorageError: the file is missing, damaged or something else."""
    try:
        return TypeAdapter(Creativity).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        again = "delete it and run `prorl creativity` again"
        raise StorageError(f"{path} cannot be read ({error}); {again}") from error


def _rows(models: Mapping[str, Values]) -> Iterator[Row]:
    first = next(iter(models.values()))
    problems = [one for values in models.values() for one, _ in values.values()]
    for part, of_part in grouped(problems, lambda one: one.part).items():
        for name in dict.fromkeys([*(one.domain for one in of_part), MEAN]):
            seed = derive(0, "creativity", purpose(part), name)
            for model, values in models.items():
                of_model = [one for one in values.values() if one[0].part == part]
                found = [one for one in of_model if name in (one[0].domain, MEAN)]
                gains = [(one, value - first[one.key][1]) for one, value in found if one.key in first]
                if found:
                    gain = _estimate(gains, seed) if gains and values is not first else None
                    index = _estimate(found, seed)
                    yield Row(part=part, domain=name, model=model, index=index, gain=gain)


def _estimate(found: Sequence[tuple[ProblemResult, float]], seed: int) -> Estimate:
    values_P1 = np.array([[value] for _, value in found])
    (index,) = curve([one for one, _ in found], (1,), rates_PK=values_P1, seed=seed)
    return Estimate(problems=len(found), mean=index.rate, low=index.low, high=index.high)


def creativity_tables(found: Creativity) -> list[Table]:
    """The creativity index of every model per part and domain, and the gains over the first model."""
    names = {one.model: one.title for one in found.models}
    lengths = f"{found.lengths.shortest} to {found.lengths.longest} words"
    columns = ["domain", *(f"{of} of {name}" for name in names.values() for of in ("index", "gain"))]
    del columns[2]  # the first model's gain over itself
    tables = []
    for part, title in NAMES.items():
        of_part = {(row.domain, row.model): row for row in found.rows if row.part == part}
        rows: list[tuple[Cell, ...]] = []
        for domain in dict.fromkeys(domain for domain, _ in of_part):
            cells: list[Cell] = []
            for model in names:
                row = of_part.get((domain, model))
                index, gain = (row.index, row.gain) if row else (None, None)
                cells += (_interval(index, ".2f"), _interval(gain, "+.2f"))
            rows.append((domain, cells[0], *cells[2:]))
        if rows:
            name = f"Creativity index ({lengths}): {title} problems"
            tables.append(Table(title=name, columns=tuple(columns), rows=tuple(rows)))
    about = Table(
        title="Responses that were counted",
        columns=("model", "responses", "words each", "too short", "floor"),
        rows=tuple(
            (names[one.model], one.counted, Number(one.words, ".1f"), one.short, Number(one.floor, ".2f"))
            for one in found.models
        ),
        notes=(
            f"corpus: {found.corpus}, {found.corpus_words:,} words, documents: {found.corpus_documents:,}",
            f"too short: of fewer than {found.lengths.shortest} words; floor: the index if the corpus held them all",
        ),
    )
    return [*tables, about]


def _interval(estimate: Estimate | None, form: str) -> Number:
    return Number(estimate.mean, form, low=estimate.low, high=estimate.high) if estimate else Number(None)


# -- the command


def measure_creativity(
    given: Sequence[Path], corpus: Sequence[Path] | None, name: str | None, lengths: Lengths, console: Console
) -> list[Table]:
    """Compare the kept responses of a run's evaluation, or of evaluation files, with a corpus; store the result."""
    paths = _evaluation_files(given, name)
    read = sorted(  # the base first, then checkpoints by step, then models from elsewhere
        map(read_evaluation, paths), key=lambda one: (one.model != "base", one.step is None, one.step or 0)
    )
    documents = documents_of(corpus) if corpus else _warmup_documents(paths[0])
    title = ", ".join(path.name or str(path) for path in corpus or ()) or "the warm-up of its base"
    with console.rich.status("comparing with the corpus"):
        found = compare_creativity(read, documents, corpus=title, lengths=lengths)
    target = paths[0].parent / INDEX
    write_creativity(target, found)
    console.say(f"stored in {target}")
    return creativity_tables(found)


def _evaluation_files(given: Sequence[Path], name: str | None) -> Sequence[Path]:
    run = run_folder(given[0])
    if not run.is_dir():
        missing = next((path for path in given if not path.is_file()), None)
        if missing is not None:
            raise ProrlError(f"there is no run and no evaluation file {missing}; check the name")
        return given
    if len(given) > 1:
        raise ProrlError("give one run, or files of evaluations")
    require_run(run)
    stored = dict(evaluations(run))
    chosen = name or next((known for known in (*PREFERRED, *stored) if known in stored), "")
    if chosen not in stored:
        has = f"it has {', '.join(stored)}" if stored else "make one first, with `prorl eval`"
        raise ProrlError(f"{run} has no evaluation{f' {name}' if name else ''}: {has}")
    return stored[chosen]


def _warmup_documents(evaluation: Path) -> Iterable[str]:
    """What the base of the run around an evaluation was warmed up on."""
    run = next((folder for folder in evaluation.absolute().parents if (folder / JOURNAL).is_file()), None)
    if run is None:
        raise ProrlError(
            f"{evaluation} lies in no run, so there is no default corpus: name one with --corpus"
        )
    return warmup_texts(RunStore.open(run).config)


def warmup_texts(config: RunConfig) -> list[str]:
    """Everything that the recipe's tiny base has read: prompts and shown responses, each a document of its own.

    As the warm-up saw it, but for examples that did not fit the model's context, which it left out. Raises
    RecipeError: the run began with a model whose training text is not known here.
    """
    warmup = config.model.warmup
    if warmup is None:
        raise RecipeError(
            f"{config.name} began with the model {config.model.path}, and what that was trained on is not known "
            "here: name a corpus with --corpus"
        )
    if warmup.until_loss:
        raise RecipeError(
            f"model.warmup.until_loss may have ended the warm-up of {config.name}'s base early, so what it has read "
            "is not known here: name a corpus with --corpus"
        )
    problems = mixture(config, warmup)
    drawn = (problems.problem(draw, "train") for draw in count())
    shown = ((problem.prompt, problem.solution) for problem in drawn if problem.solution is not None)
    return [
        text
        for prompt, solution in islice(shown, warmup.steps * warmup.batch_size)
        for text in (prompt, respond(solution.steps, solution.answer))
    ]
