"""The frozen table: instruction id → check, arguments, and what the floor under it must know.

The ids and argument names are those of IFEval (arXiv:2311.07911), of its training extension IFEvalG, and a few of
IFBench (arXiv:2507.02833 for both). The checks are this project's own and stricter where the originals can be
met for nothing: see each check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from prorl.envs.verifiers.instructions import case, copying, counts, keywords, layout, length, position
from prorl.envs.verifiers.instructions.arguments import (
    Reader,
    Relation,
    language,
    letter,
    positive,
    relation,
    text,
    texts,
    verbatim,
    whole,
)

CHARS_PER_WORD = 8  # a generous word: leaves a limit on letters room enough to say something


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How to check one kind of instruction."""

    test: Callable[..., bool]  # (response, **arguments)
    arguments: Mapping[str, Reader] = field(default_factory=dict)  # all of them are required
    given: tuple[str, ...] = ()  # arguments that hand out words which the response only has to repeat
    fixes: bool = False  # the instruction fixes the whole response, so there is no floor under it
    room: Callable[..., int | None] | None = None  # (**arguments) → most words allowed, None for no limit
    objection: Callable[..., str | None] | None = (
        None  # (**arguments) → why no response, or every one, meets it
    )


def _compared(amount: str, by: str, least: int = 0) -> Callable[..., str | None]:
    """Objects to a comparison that every response meets, or none that has at least `least` of what is counted."""

    def objection(**arguments: Any) -> str | None:
        if arguments[by] == "at least" and arguments[amount] == 0:
            return "every response meets it"
        if arguments[by] == "less than" and arguments[amount] <= least:
            return "no response meets it"
        return None

    return objection


def _limit(relation: Relation, number: int, per_word: int = 1) -> int | None:
    return (number - 1) // per_word if relation == "less than" else None


def _ordered(low: str, high: str) -> Callable[..., str | None]:
    def objection(**arguments: Any) -> str | None:
        return None if arguments[low] <= arguments[high] else f"{low} is greater than {high}"

    return objection


def _bad_span(prompt_to_repeat: str, n_start: int, n_end: int) -> str | None:
    inside = n_start < n_end <= len(prompt_to_repeat)
    return (
        None
        if inside and prompt_to_repeat[n_start:n_end].strip()
        else "the span is empty or outside the text"
    )


def _bad_phrase(phrase: str, small_n: int) -> str | None:
    return None if len(phrase.split()) >= 3 else "the phrase has no inner word to replace"


_COMMON = {"relation": relation}
_FREQUENCY = Rule(
    test=keywords.frequency,
    arguments={"keyword": text, "frequency": whole, **_COMMON},
    given=("keyword",),
    objection=_compared("frequency", "relation"),
)
_LETTER_FREQUENCY = Rule(
    test=counts.letter_frequency,
    arguments={"letter": letter, "let_frequency": whole, "let_relation": relation},
    objection=_compared("let_frequency", "let_relation"),
)
_COPY = Rule(test=copying.copy, arguments={"prompt_to_repeat": text}, fixes=True)

_IFEVAL = {
    "keywords:existence": Rule(test=keywords.existence, arguments={"keywords": texts}, given=("keywords",)),
    "keywords:frequency": _FREQUENCY,
    "keywords:forbidden_words": Rule(test=keywords.forbidden_words, arguments={"forbidden_words": texts}),
    "keywords:letter_frequency": _LETTER_FREQUENCY,
    "language:response_language": Rule(test=case.response_language, arguments={"language": language}),
    "length_constraints:number_sentences": Rule(
        test=length.number_sentences,
        arguments={"num_sentences": whole, **_COMMON},
        objection=_compared("num_sentences", "relation", least=1),
    ),
    "length_constraints:number_paragraphs": Rule(
        test=length.number_paragraphs, arguments={"num_paragraphs": positive}
    ),
    "length_constraints:number_words": Rule(
        test=length.number_words,
        arguments={"num_words": whole, **_COMMON},
        room=lambda num_words, relation: _limit(relation, num_words),
        objection=_compared("num_words", "relation", least=1),
    ),
    "length_constraints:nth_paragraph_first_word": Rule(
        test=length.nth_first_word,
        arguments={"num_paragraphs": positive, "nth_paragraph": positive, "first_word": text},
        given=("first_word",),
        objection=_ordered("nth_paragraph", "num_paragraphs"),
    ),
    "detectable_content:number_placeholders": Rule(
        test=layout.placeholders, arguments={"num_placeholders": positive}
    ),
    "detectable_content:postscript": Rule(
        test=position.postscript, arguments={"postscript_marker": text}, given=("postscript_marker",)
    ),
    "detectable_format:number_bullet_lists": Rule(test=layout.bullets, arguments={"num_bullets": whole}),
    "detectable_format:constrained_response": Rule(test=layout.constrained, fixes=True),
    "detectable_format:number_highlighted_sections": Rule(
        test=layout.highlights, arguments={"num_highlights": positive}
    ),
    "detectable_format:multiple_sections": Rule(
        test=layout.sections,
        arguments={"section_spliter": text, "num_sections": positive},
        given=("section_spliter",),
    ),
    "detectable_format:json_format": Rule(test=layout.json_format),
    "detectable_format:title": Rule(test=layout.title),
    "combination:two_responses": Rule(test=copying.two_responses),
    "combination:repeat_prompt": Rule(
        test=copying.repeat_prompt, arguments={"prompt_to_repeat": text}, given=("prompt_to_repeat",)
    ),
    "startend:end_checker": Rule(
        test=position.end_checker, arguments={"end_phrase": text}, given=("end_phrase",)
    ),
    "startend:quotation": Rule(test=position.quotation),
    "change_case:capital_word_frequency": Rule(
        test=counts.capital_words,
        arguments={"capital_frequency": whole, "capital_relation": relation},
        objection=_compared("capital_frequency", "capital_relation"),
    ),
    "change_case:english_capital": Rule(test=case.english_capital),
    "change_case:english_lowercase": Rule(test=case.english_lowercase),
    "punctuation:no_comma": Rule(test=case.no_comma),
}

_IFEVALG = {
    "keywords:word_count_different_numbers": _FREQUENCY,
    "keywords:word_once": Rule(test=keywords.word_once, arguments={"keyword": text}, given=("keyword",)),
    "keywords:exclude_word_harder": Rule(test=keywords.exclude_word, arguments={"keyword": text}),
    "keywords:no_adjacent_consecutive": Rule(test=keywords.no_adjacent_consecutive),
    "keywords:palindrome": Rule(test=keywords.palindrome),
    "keywords:keyword_specific_position": Rule(
        test=position.word_at, arguments={"keyword": text, "n": positive, "m": positive}, given=("keyword",)
    ),
    "keywords:start_end": Rule(test=position.same_first_and_last),
    "letters:letter_counting": Rule(
        test=counts.letter_total,
        arguments={"N": whole, **_COMMON},
        room=lambda N, relation: _limit(relation, N, CHARS_PER_WORD),
        objection=_compared("N", "relation", least=1),
    ),
    "letters:letter_counting2": _LETTER_FREQUENCY,
    "paragraphs:paragraphs": Rule(test=length.two_divided),
    "paragraphs:paragraphs2": Rule(test=length.two_spaced),
    "first_word:first_word_answer": Rule(
        test=position.first_word, arguments={"first_word": text}, given=("first_word",)
    ),
    "first_word:first_word_sent": Rule(
        test=position.first_words, arguments={"first_word": text}, given=("first_word",)
    ),
    "last_word:last_word_answer": Rule(
        test=position.last_word, arguments={"last_word": text}, given=("last_word",)
    ),
    "last_word:last_word_sent": Rule(
        test=position.last_words, arguments={"last_word": text}, given=("last_word",)
    ),
    "detectable_format:square_brackets": Rule(test=layout.square_brackets),
    "detectable_format:bigram_wrapping": Rule(test=layout.bigram_wrapping),
    "detectable_format:sentence_hyphens": Rule(test=layout.sentence_hyphens),
    "copy:copy": _COPY,
    "copy:copying_simple": _COPY,
    "copy:copying_multiple": Rule(
        test=copying.copies, arguments={"prompt_to_repeat": text, "N": positive}, fixes=True
    ),
    "copy:repeat_phrase": Rule(
        test=copying.repeat_phrase,
        arguments={"phrase": text, "small_n": positive},
        given=("phrase",),
        objection=_bad_phrase,
    ),
    "new:copy_span_idx": Rule(
        test=copying.copy_span,
        arguments={"prompt_to_repeat": verbatim, "n_start": whole, "n_end": positive},
        fixes=True,
        objection=_bad_span,
    ),
    "punctuation:punctuation_dot": Rule(test=case.no_dot),
    "punctuation:punctuation_exclamation": Rule(test=case.no_exclamation),
    "count:lowercase_counting": Rule(test=counts.lowercase_words, arguments={"N": whole}),
    "count:counting_composition": Rule(
        test=counts.composition,
        arguments={"n_sent": positive, "n_words": positive},
        room=lambda n_sent, n_words: 3 * n_sent * n_words,
    ),
    "count:count_unique": Rule(test=counts.all_different),
    "count:count_increment_word": Rule(
        test=keywords.once_and_twice,
        arguments={"keyword1": text, "keyword2": text},
        given=("keyword1", "keyword2"),
    ),
}

_FIVE = tuple(f"keyword{number}" for number in range(1, 6))
_IFBENCH = {
    "count:word_count_range": Rule(
        test=length.word_range,
        arguments={"min_words": whole, "max_words": positive},
        room=lambda min_words, max_words: max_words,
        objection=_ordered("min_words", "max_words"),
    ),
    "count:unique_word_count": Rule(test=counts.distinct_words, arguments={"N": positive}),
    "count:numbers": Rule(test=counts.numbers, arguments={"N": whole}),
    "count:conjunctions": Rule(
        test=counts.conjunctions,
        arguments={"small_n": positive},
        objection=lambda small_n: "there are seven" if small_n > len(counts.CONJUNCTIONS) else None,
    ),
    "count:keywords_multiple": Rule(
        test=keywords.five_keywords, arguments=dict.fromkeys(_FIVE, text), given=_FIVE
    ),
}

RULES: Mapping[str, Rule] = MappingProxyType({**_IFEVAL, **_IFEVALG, **_IFBENCH})
