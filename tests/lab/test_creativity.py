"""Words, corpora and longest matches; the creativity index by its definition, and models side by side."""

import json
import unicodedata
from statistics import fmean

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError
from prorl.lab import creativity
from prorl.lab.creativity import (
    DEPTH,
    Estimate,
    Lengths,
    compare_creativity,
    creativity_index,
    documents_of,
    longest_matches,
    read_creativity,
    split_words,
    uniqueness,
    write_creativity,
)
from prorl.lab.evals.evaluation_store import Evaluation
from prorl.lab.evals.problems import ProblemResult
from support.evaluations import evaluation as evaluation_of
from support.evaluations import kept, result

MIXED = st.lists(st.sampled_from("abc"), max_size=40).map(" ".join)
LETTERS = MIXED | st.integers(1, 40).map(lambda size: " ".join("a" * size))
CORPORA = st.lists(LETTERS, min_size=1, max_size=6).filter(any)
FEW = Lengths(shortest=2, longest=4)


def matches(documents: list[str], texts: list[str]) -> list[list[int]]:
    return [found.tolist() for found in longest_matches(texts, documents)[0]]


def matches_of(documents: list[str], text: str):
    (found,), *_ = longest_matches([text], documents)
    return found


# -- words and files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\r\n", []),
        ("Don't stop", ["don", "'", "t", "stop"]),
        ("3*(8+1)=27", ["3", "*", "(", "8", "+", "1", ")", "=", "27"]),
        ("x2 a_b", ["x2", "a", "_", "b"]),
        ("</think><answer>4</answer>", ["</think>", "<answer>", "4", "</answer>"]),
        ("a < b > c", ["a", "<", "b", ">", "c"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Москва, 東京!", ["москва", ",", "東京", "!"]),
        ("\ud800 odd", ["\ud800", "odd"]),
    ],
)
def test_words(text, expected):
    assert list(split_words(text)) == expected


@given(st.text())
def test_neither_case_nor_white_space_nor_the_spelling_of_a_character_matters(text):
    parts = text.split()
    assert list(split_words(" ".join(parts))) == list(split_words("\n\n".join(parts)))
    composed, decomposed = (unicodedata.normalize(form, "É" + "Ärger") for form in ("NFC", "NFD"))
    assert list(split_words(composed)) == list(split_words(decomposed.swapcase()))


@given(st.text())
def test_words_hold_every_visible_character_once(text):
    folded = unicodedata.normalize("NFC", text.casefold())
    assert "".join(split_words(text)) == "".join(folded.split())


def write(folder):
    (folder / "a.txt").write_text("first line\nsecond line", encoding="utf-8-sig")
    (folder / "deep").mkdir()
    lines = "".join(json.dumps({"text": text, "id": 7}) + "\n" for text in ("one", "two\nthree"))
    (folder / "deep" / "b.jsonl").write_text(lines + "\n")
    table = pyarrow.table({"id": [1, 2, 3], "text": ["uno", None, "due"]})
    parquet.write_table(table, folder / "deep" / "c.parquet")
    (folder / "notes.md").write_text("not part of it")


def test_a_folder_gives_the_documents_of_all_its_files(tmp_path):
    write(tmp_path)
    documents = ["first line\nsecond line", "one", "two\nthree", "uno", "due"]
    assert list(documents_of([tmp_path])) == documents


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "München".encode("latin-1"), r"cannot read .*a\.txt \('utf-8' codec .* write it in UTF-8"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": 3}\n', r"row 2 of .*a\.jsonl has no field `text`"),
        ("a.jsonl", b"[]\n", "row 1 of"),
        ("a.jsonl", b'{"text": "cut', "row 1 of"),
        ("a.parquet", b"PAR1 no", r"cannot read .*a\.parquet"),
        ("a.parquet", {"content": ["x"], "id": [1]}, r"row 1 of .*a\.parquet has no field `text`"),
        ("a.parquet", {"text": [["x"]]}, r"row 1 of .*a\.parquet has no field `text`"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_in_a_sentence(tmp_path, name, content, sentence):
    if isinstance(content, dict):
        parquet.write_table(pyarrow.table(content), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ProrlError, match=sentence):
        list(documents_of([tmp_path / name]))


@pytest.mark.parametrize("name", [".", "missing.txt", "a.doc"])
def test_a_path_without_a_corpus_is_said_in_a_sentence(tmp_path, name):
    (tmp_path / "a.doc").touch()
    with pytest.raises(ProrlError, match=r"there is no corpus .* in \.txt, \.jsonl, \.parquet, or a folder"):
        documents_of([tmp_path / name])


# -- the longest matches


def sequences(documents: list[str], lengths: range) -> set[tuple[str, ...]]:
    """All word sequences of these lengths in the documents."""
    corpus = [document.split() for document in documents]
    return {tuple(d[i : i + n]) for d in corpus for n in lengths for i in range(len(d) - n + 1)}


def look_everywhere(documents: list[str], text: str) -> list[int]:
    """For every word the longest match, by definition."""
    words = text.split()
    lengths = range(1, min(DEPTH, len(words)) + 1)
    grams = sequences(documents, lengths)
    return [
        max((n for n in lengths if i + n <= len(words) and tuple(words[i : i + n]) in grams), default=0)
        for i in range(len(words))
    ]


@pytest.mark.parametrize("batch", [1, 30, 1 << 20])
@given(documents=CORPORA, texts=st.lists(LETTERS, max_size=4))
def test_matches_are_those_of_looking_everywhere(documents, texts, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creativity, "AT_A_TIME", batch)
        assert matches(documents, texts) == [look_everywhere(documents, text) for text in texts]


@pytest.mark.parametrize(
    ("documents", "texts", "found"),
    [
        (["one two three four"], ["one two three four"], [[4, 3, 2, 1]]),
        (["one two", "three four"], ["one two three four"], [[2, 1, 2, 1]]),
        (["one two three four"], ["one two", "three four"], [[2, 1], [2, 1]]),
        (["one two", ""], ["one zzz two", "yyy xxx", ""], [[1, 0, 1], [0, 0], []]),
        (["one two", ""], ["yyy xxx", ""], [[0, 0], []]),
        (["zwei drei \ud800 Élan"], ["ÉLAN drei \ud800"], [[1, 2, 1]]),
    ],
)
def test_a_match_stays_within_a_document_a_text_and_known_words(documents, texts, found):
    assert matches(documents, texts) == found


def test_documents_and_words_are_counted_and_there_must_be_some():
    _, *counted = longest_matches(["one"], ["one two, three", "", "one"])
    assert counted == [3, 5]
    for documents in ([], [""], [" ", "\n"]):
        with pytest.raises(ProrlError, match="no words"):
            matches(documents, ["one"])


# -- the definition


def by_definition(documents: list[str], text: str, length: int) -> float:
    """The share of words w such that no n-gram with n >= L that contains w occurs in the corpus."""
    words = text.split()
    lengths = range(length, len(words) + 1)
    spans = [(i, i + n) for n in lengths for i in range(len(words) - n + 1)]
    grams = sequences(documents, lengths)
    found = [(i, j) for i, j in spans if tuple(words[i:j]) in grams]
    return fmean(not any(i <= position < j for i, j in found) for position in range(len(words)))


WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=20).map(" ".join)


@given(CORPORA, WORDS, st.integers(1, 8))
def test_uniqueness_and_index_are_what_their_definitions_say(documents, text, length):
    found = matches_of(documents, text)
    assert uniqueness(found, length) == pytest.approx(by_definition(documents, text, length))
    expected = sum(by_definition(documents, text, length) for length in (2, 3, 4))
    assert creativity_index(found, FEW) == pytest.approx(expected)


def test_the_index_is_between_0_and_the_number_of_lengths():
    text = " ".join(f"w{number}" for number in range(30))
    assert creativity_index(matches_of([f"before {text} behind"], text), Lengths()) == 0
    assert creativity_index(matches_of(["something else"], text), Lengths()) == 8
    text = "one two three"  # shorter than sequences of 4, 5 and 6 words, so it cannot reach 0
    assert creativity_index(matches_of([text], text), Lengths(shortest=2, longest=6)) == 3


@pytest.mark.parametrize(("shortest", "longest"), [(0, 5), (6, 5), (5, 17), (-1, -1)])
def test_lengths_that_cannot_be_looked_for_are_refused(shortest, longest):
    with pytest.raises(ProrlError, match="choose two lengths"):
        Lengths(shortest=shortest, longest=longest)


# -- models side by side


def problem(domain: str, number: int, *texts: str, part: str = "test") -> ProblemResult:
    return result(0, 8, index=number, task=f"{domain} task", domain=domain, part=part, kept=kept(*texts))


def evaluation(model: str, *problems: ProblemResult, step: int | None = None) -> Evaluation:
    return evaluation_of(model, problems, step=step)


OLD, NEW, HALF = "a b c d", "w x y z", "a b y z"


def compared(*evaluations: Evaluation, lengths: Lengths = FEW):
    return compare_creativity(evaluations, [OLD], corpus="letters", lengths=lengths)


def row(found, model, domain, part="test"):
    (chosen,) = [r for r in found.rows if (r.model, r.domain, r.part) == (model, domain, part)]
    return chosen


def test_models_are_compared_on_the_same_problems():
    base = evaluation("base", *(problem("math", n, OLD) for n in range(4)), step=0)
    # The trained model has no response to problem 3, and one more problem of its own.
    trained = evaluation(
        "step_000010", *(problem("math", n, NEW) for n in (0, 1)), problem("math", 9, OLD), step=10
    )
    found = compared(base, trained)
    before, after = (row(found, model, "math") for model in ("base", "step_000010"))
    assert (before.index, before.gain) == (Estimate(problems=4, mean=0, low=0, high=0), None)
    assert (after.index.problems, after.index.mean) == (3, pytest.approx(2))  # 3, 3 and 0
    assert after.gain == Estimate(problems=2, mean=3, low=3, high=3)
    assert [responses.step for responses in found.models] == [0, 10]
    assert (found.corpus, found.corpus_words, found.corpus_documents) == ("letters", 4, 1)


def test_responses_of_a_problem_are_averaged_without_the_one_that_is_kept_because_it_passed():
    found = compared(evaluation("base", problem("math", 0, OLD, NEW, NEW), problem("math", 1, OLD)))
    assert (row(found, "base", "math").index.mean, found.models[0].counted) == ((1.5 + 0) / 2, 3)


def test_domains_count_alike_and_parts_stay_apart():
    problems = [problem("math", n, OLD) for n in range(3)] + [problem("code", 0, NEW)]
    found = compared(evaluation("base", *problems, problem("math", 7, NEW, part="ood")))
    # All problems of a domain are alike, so others of these domains would give the same mean.
    assert row(found, "base", "mean").index == Estimate(problems=4, mean=1.5, low=1.5, high=1.5)
    assert row(found, "base", "mean", "ood").index.mean == pytest.approx(3)


def test_short_responses_are_counted_apart():
    found = compared(evaluation("base", problem("math", 0, "a", HALF), problem("math", 1, "", "a b c")))
    (responses,) = found.models
    assert (responses.counted, responses.short, responses.words) == (2, 2, 3.5)
    assert row(found, "base", "math").index.problems == 2


def test_the_floor_is_the_index_of_responses_that_the_corpus_holds():
    texts = (OLD, "a b c", "b c")
    problems = [problem("math", n, text) for n, text in enumerate(texts)]
    found = compare_creativity([evaluation("base", *problems)], texts, corpus="texts", lengths=FEW)
    assert found.models[0].floor == row(found, "base", "math").index.mean == (0 + 1 + 2) / 3


def test_a_model_of_which_nothing_can_be_said_is_refused_and_so_are_two_of_one_name():
    one = evaluation("base", problem("math", 0, OLD))
    with pytest.raises(ProrlError, match="two evaluations of base"):
        compared(one, one)
    with pytest.raises(ProrlError, match="base has no kept response of 2 words or more"):
        compared(evaluation("base", problem("math", 0, "a")))


def test_intervals_enclose_the_mean_and_a_model_gains_nothing_over_itself():
    problems = [problem("math", n, text) for n, text in enumerate((OLD, NEW, HALF, NEW))]
    found = compared(evaluation("base", *problems), evaluation("other", *problems[1:]))
    for each in found.rows:
        assert each.index.low < each.index.mean < each.index.high
    assert row(found, "other", "math").gain == Estimate(problems=3, mean=0, low=0, high=0)


def test_a_comparison_comes_back_as_it_was(tmp_path):
    found = compared(
        evaluation("base", problem("math", 0, HALF)), evaluation("m", problem("math", 0, NEW), step=3)
    )
    write_creativity(tmp_path / "c.json", found)
    assert read_creativity(tmp_path / "c.json") == found


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"models": []}', b'{"models": [{"x": 1}], "rows": []}'])
def test_a_damaged_comparison_is_said_in_a_sentence(tmp_path, damage):
    (tmp_path / "c.json").write_bytes(damage)
    with pytest.raises(StorageError, match="run `prorl creativity` again"):
        read_creativity(tmp_path / "c.json")
