"""Instruction following: checks under the ids and arguments of IFEval and its successors, so that real data loads.

An instruction that cannot be checked raises when its data is prepared (`validate`) and makes the verdict an error
later. Ids and argument names are those of IFEval (arXiv:2311.07911), of its training extension IFEvalG, and a few of
IFBench (arXiv:2507.02833 for both). The checks are this project's own and stricter where the originals are met for
nothing. As in IFEval a required keyword counts wherever its letters occur, a forbidden one must be a word of its own;
keywords are literal text, never patterns.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, NotRequired, TypedDict

from prorl.envs.errors import ProrlError
from prorl.envs.types import Verdict
from prorl.envs.verifiers import instruction_checks as checks
from prorl.envs.verifiers.instruction_checks import LANGUAGES, detect, occurrences, sentences, words

MAX_COUNT = 1_000_000
MAX_CHARS = 200_000  # nothing longer is judged: no model asked for a page writes this much
LETTERS_PER_WORD = 8  # a generous word: leaves a limit on letters room enough to say something
CONSTRAINED = ("my answer is yes.", "my answer is no.", "my answer is maybe.")
CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})

_BRACKETED = re.compile(r"\[([^\[\]\n]*)\]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class UnknownInstructionError(ProrlError):
    """An instruction that nobody could check: unknown id, or arguments that are missing or ask for nothing."""


class Instruction(TypedDict):
    """One verifiable instruction, as the data sets give it; arguments that are None count as absent."""

    id: str
    kwargs: NotRequired[Mapping[str, Any]]


# Arguments, read from the loose JSON of the data sets: each reader returns the clean value or raises a ValueError
# that says what it should have been.


def _whole(value: Any, least: int = 0) -> int:
    """It may arrive as a float: a column with nulls does that to whole numbers."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= MAX_COUNT or value % 1:
        raise ValueError(f"must be a whole number from {least} to {MAX_COUNT}")
    return int(value)


_positive = partial(_whole, least=1)


def _one_of(choices: Collection[str], value: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"must be one of {', '.join(sorted(choices))}")
    return value


_relation = partial(_one_of, ("less than", "at least"))  # IFEval's two
_language = partial(_one_of, LANGUAGES)


def _text(value: Any) -> str:
    """A phrase with something in it, stripped; some data sets put it into a list of one."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value.strip()


def _verbatim(value: Any) -> str:
    """A text of which every character counts, positions included: not stripped."""
    _text(value)
    return str(value if isinstance(value, str) else value[0])


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("must be a list of texts that is not empty")
    return tuple(_text(item) for item in value)


def _letter(value: Any) -> str:
    """A single visible character; the data also ask for signs such as # and !."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("must be a single character")
    return value.strip()


_handed = partial(_text)  # that the response only has to repeat: its words are no words of its own
_Reader = Callable[[Any], Any]
_READERS: Mapping[str, _Reader] = {name: reader for reader, names in (  # of an argument, unless a rule has its own
    (_whole, "N num_bullets n_start min_words"),
    (_positive, "num_paragraphs nth_paragraph num_placeholders num_highlights num_sections n m small_n n_end n_sent "
     "n_words max_words"),
    (_handed, "keyword keyword1 keyword2 keyword3 keyword4 keyword5 first_word last_word postscript_marker "
     "section_spliter end_phrase phrase"),
    (_texts, "keywords forbidden_words"), (_text, "prompt_to_repeat"), (_letter, "letter"),
    (_language, "language"),
) for name in names.split()}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How to check one kind of instruction; `room` and `objection` take the arguments, `test` the response before."""

    test: Callable[..., bool]
    arguments: Mapping[str, _Reader]  # all of them are required
    fixes: bool = False  # the instruction fixes the whole response, so there is no floor under it
    room: Callable[..., int | None] = lambda **_: None  # the most words allowed, None for no limit
    objection: Callable[..., str | None] = lambda **_: None  # why no response, or every one, meets it


def _rule(test: Callable[..., bool], own: Mapping[str, _Reader] = {}, **parts: Any) -> Rule:
    """A rule with the arguments that `test` takes after the response; `own` are readers that differ."""
    return Rule(test=test, arguments={**_arguments(test), **own}, **parts)


def _arguments(test: Callable[..., object]) -> dict[str, _Reader]:
    return {name: _READERS[name] for name in list(signature(test).parameters)[1:]}


def _counted(
    count: Callable[..., int],
    threshold: str,
    relation: str = "relation",
    *,
    least: int = 0,
    per_word: int = 0,
) -> Rule:
    """What is counted is less than, or at least, the argument `threshold`, as the argument `relation` says.

    Every response that says something has at least `least`. `per_word` is for what limits the words.
    """

    def test(response: str, **given: Any) -> bool:
        number, is_limit = int(given.pop(threshold)), bool(given.pop(relation) == "less than")
        return (count(response, **given) < number) == is_limit

    def room(**given: Any) -> int | None:
        return (given[threshold] - 1) // per_word if per_word and given[relation] == "less than" else None

    def objection(**given: Any) -> str | None:
        if given[relation] == "at least":
            return "every response meets it" if given[threshold] == 0 else None
        return "no response meets it" if given[threshold] <= least else None

    readers = _arguments(count) | {threshold: _whole, relation: _relation}
    return Rule(test=test, arguments=readers, room=room, objection=objection)


def _ordered(low: str, high: str) -> Callable[..., str | None]:
    return lambda **given: None if given[low] <= given[high] else f"{low} is greater than {high}"


def _bad_span(prompt_to_repeat: str, n_start: int, n_end: int) -> str | None:
    inside = n_start < n_end <= len(prompt_to_repeat) and prompt_to_repeat[n_start:n_end].strip()
    return None if inside else "the span is empty or outside the text"


def _without(signs: str) -> Rule:
    return _rule(lambda r: not any(sign in r for sign in signs))


def _exactly(**times: int) -> Rule:
    def test(response: str, **keywords: str) -> bool:
        return all(occurrences(response, keywords[name]) == number for name, number in times.items())

    return Rule(test=test, arguments=dict.fromkeys(times, _handed))


_FREQUENCY = _counted(occurrences, "frequency")
_LETTER_FREQUENCY = _counted(
    lambda r, letter: r.lower().count(letter.lower()), "let_frequency", "let_relation"
)
_COPY = _rule(lambda r, prompt_to_repeat: checks.folded(r) == checks.folded(prompt_to_repeat), fixes=True)

RULES: Mapping[str, Rule] = {
    # IFEval
    "keywords:existence": _rule(lambda r, keywords: all(occurrences(r, keyword) for keyword in keywords)),
    "keywords:frequency": _FREQUENCY,
    "keywords:forbidden_words": _rule(
        lambda r, forbidden_words: not any(checks.stands_alone(r, word) for word in forbidden_words)),
    "keywords:letter_frequency": _LETTER_FREQUENCY,
    "language:response_language": _rule(lambda r, language: detect(r) == language),
    "length_constraints:number_sentences": _counted(lambda r: len(sentences(r)), "num_sentences", least=1),
    "length_constraints:number_paragraphs": _rule(
        lambda r, num_paragraphs: len(checks.divided(r, checks.DIVIDER)) == num_paragraphs),
    "length_constraints:number_words": _counted(lambda r: len(words(r)), "num_words", least=1, per_word=1),
    "length_constraints:nth_paragraph_first_word": _rule(
        checks.nth_paragraph, objection=_ordered("nth_paragraph", "num_paragraphs")),
    "detectable_content:number_placeholders": _rule(
        lambda r, num_placeholders: sum(map(checks.has_words, _BRACKETED.findall(r))) >= num_placeholders),
    "detectable_content:postscript": _rule(checks.postscript),
    "detectable_format:number_bullet_lists": _rule(checks.bullets),
    "detectable_format:constrained_response": _rule(  # naming more than one is no answer
        lambda r: sum(option in r.lower() for option in CONSTRAINED) == 1, fixes=True),
    "detectable_format:number_highlighted_sections": _rule(checks.highlights),
    "detectable_format:multiple_sections": _rule(checks.sections),
    "detectable_format:json_format": _rule(checks.json_format),
    "detectable_format:title": _rule(checks.title),
    "combination:two_responses": _rule(checks.two_responses),
    "combination:repeat_prompt": _rule(checks.repeat_prompt, {"prompt_to_repeat": _handed}),
    "startend:end_checker": _rule(checks.end_checker),
    "startend:quotation": _rule(checks.quotation),
    "change_case:capital_word_frequency": _counted(  # a hyphenated word is one, and so is "I"
        lambda r: sum(map(str.isupper, checks.tokens(r))), "capital_frequency", "capital_relation"),
    "change_case:english_capital": _rule(lambda r: r.isupper() and detect(r) == "en"),
    "change_case:english_lowercase": _rule(lambda r: r.islower() and detect(r) == "en"),
    "punctuation:no_comma": _without(",，、،﹐"),
    # IFEvalG
    "keywords:word_count_different_numbers": _FREQUENCY,
    "keywords:word_once": _rule(lambda r, keyword: occurrences(r, keyword) == 1),
    "keywords:exclude_word_harder": _rule(lambda r, keyword: not checks.stands_alone(r, keyword), {"keyword": _text}),
    "keywords:no_adjacent_consecutive": _rule(checks.no_adjacent_consecutive),
    "keywords:palindrome": _rule(  # of three letters, two of them different: a lone "a" or "mmm" is none
        lambda r: any(len(word) >= 3 and len(set(word)) >= 2 and word == word[::-1] for word in words(r))),
    "keywords:keyword_specific_position": _rule(checks.word_at),
    "keywords:start_end": _rule(checks.same_first_and_last),
    "letters:letter_counting": _counted(lambda r: sum(map(str.isalpha, r)), "N", least=1, per_word=LETTERS_PER_WORD),
    "letters:letter_counting2": _LETTER_FREQUENCY,
    "paragraphs:paragraphs": _rule(lambda r: len(checks.divided(r, checks.DIVIDER)) == 2),
    "paragraphs:paragraphs2": _rule(lambda r: len(checks.paragraphs(r)) == 2),
    "first_word:first_word_answer": _rule(lambda r, first_word: checks.begins_with(r, first_word)),
    "first_word:first_word_sent": _rule(
        lambda r, first_word: checks.every_sentence(r, checks.begins_with, first_word)),
    "last_word:last_word_answer": _rule(lambda r, last_word: checks.ends_with_word(r, last_word)),
    "last_word:last_word_sent": _rule(
        lambda r, last_word: checks.every_sentence(r, checks.ends_with_word, last_word)),
    "detectable_format:square_brackets": _rule(checks.square_brackets),
    "detectable_format:bigram_wrapping": _rule(checks.bigram_wrapping),
    "detectable_format:sentence_hyphens": _rule(checks.sentence_hyphens),
    "copy:copy": _COPY,
    "copy:copying_simple": _COPY,
    "copy:copying_multiple": _rule(checks.copies, {"N": _positive}, fixes=True),
    "copy:repeat_phrase": _rule(checks.repeat_phrase, objection=lambda phrase, small_n: (
        None if len(phrase.split()) >= 3 else "the phrase has no inner word to replace")),
    "new:copy_span_idx": _rule(checks.copy_span, {"prompt_to_repeat": _verbatim}, fixes=True, objection=_bad_span),
    "punctuation:punctuation_dot": _without(".．…"),
    "punctuation:punctuation_exclamation": _without("!！"),
    "count:lowercase_counting": _rule(lambda r, N: sum(map(str.islower, checks.tokens(r))) <= N),
    "count:counting_composition": _rule(checks.composition, room=lambda n_sent, n_words: 3 * n_sent * n_words),
    "count:count_unique": _rule(lambda r: len(found := words(r)) == len(set(found))),
    "count:count_increment_word": _exactly(keyword1=1, keyword2=2),
    # IFBench
    "count:word_count_range": _rule(
        lambda r, min_words, max_words: min_words <= len(words(r)) <= max_words,
        room=lambda min_words, max_words: max_words, objection=_ordered("min_words", "max_words")),
    "count:unique_word_count": _rule(lambda r, N: len(set(words(r))) >= N, {"N": _positive}),
    "count:numbers": _rule(lambda r, N: len(_NUMBER.findall(r)) == N),
    "count:conjunctions": _rule(
        lambda r, small_n: len(CONJUNCTIONS.intersection(words(r))) >= small_n,
        objection=lambda small_n: "there are seven" if small_n > len(CONJUNCTIONS) else None),
    "count:keywords_multiple": _exactly(keyword1=1, keyword2=2, keyword3=3, keyword4=5, keyword5=7),
}  # fmt: skip


def verify(instructions: Sequence[Instruction], response: str, *, prompt: str = "") -> Verdict:
    """The share of the instructions that the response, the text after the thinking, meets; "ok" if it is all.

    A response that says nothing, or only echoes the prompt, meets none. Status "error" if an instruction is invalid.
    """
    try:
        known = [validate(instruction) for instruction in instructions]
    except UnknownInstructionError as problem:
        return Verdict(score=0.0, status="error", note=str(problem))
    met = 0
    if len(response) <= MAX_CHARS and _has_content(known, response, prompt):
        met = sum(rule.test(response, **arguments) for rule, arguments in known)
    points = met / len(known)
    return Verdict(score=points, status="ok" if points == 1 else "wrong", answered=bool(response.strip()))


def validate(instruction: Instruction) -> tuple[Rule, dict[str, Any]]:
    """The rule and the clean arguments of an instruction that some responses meet and others do not.

    Raises UnknownInstructionError: unknown id, or an argument that is missing, unknown or impossible.
    """
    name, rule = instruction["id"], RULES.get(instruction["id"])
    if rule is None:
        raise UnknownInstructionError(f"instruction {name!r} is unknown: drop the row or add a check")
    given = {name: value for name, value in instruction.get("kwargs", {}).items() if value is not None}
    if given.keys() != rule.arguments.keys():
        raise UnknownInstructionError(
            f"instruction {name} takes {sorted(rule.arguments)}, not {sorted(given)}: drop the row"
        )
    arguments = {}
    for key, value in given.items():
        try:
            arguments[key] = rule.arguments[key](value)
        except ValueError as problem:
            raise UnknownInstructionError(f"instruction {name}: {key} {problem}: drop the row") from None
    if objection := rule.objection(**arguments):
        raise UnknownInstructionError(f"instruction {name}: {objection}: drop the row")
    return rule, arguments


def _has_content(known: Sequence[tuple[Rule, dict[str, Any]]], response: str, prompt: str) -> bool:
    if any(rule.fixes and rule.test(response, **arguments) for rule, arguments in known):
        return True
    handed = [
        " ".join(arguments[name]) if name == "keywords" else arguments[name]
        for rule, arguments in known
        for name, reader in rule.arguments.items()
        if reader is _handed or name == "keywords"
    ]
    given = frozenset(words(" ".join(handed)))
    limits = [rule.room(**arguments) for rule, arguments in known]
    room = min((limit for limit in limits if limit is not None), default=None)
    return checks.says_something(response, prompt, given=given, least=checks.floor(room, given))
