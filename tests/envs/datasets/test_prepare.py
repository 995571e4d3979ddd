"""Preparing: what is kept, dropped and redone, and what makes a row unfit."""

import json

import datasets
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prorl.envs.datasets.catalogue import SOURCES, DataError, Drop, SourceRequest
from prorl.envs.datasets.prepare import (
    SHARED_BY,
    Overlap,
    describe_needs,
    prepare,
    require_prepared,
)
from prorl.envs.datasets.store import DatasetTask, file_of, read_manifest
from prorl.envs.files import sha256
from support.data_rows import AMC, DEEPSCALER, OLYMPIAD, ROWS, USABLE, write_jsonl, write_parquet


def silent(name, rows):
    pass


def write_broken_at_the_end(path, rows):
    """Parquet whose last group of rows is damaged."""
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, row_group_size=20)
    last = parquet.ParquetFile(path).metadata.row_group(2).column(0)
    content = bytearray(path.read_bytes())
    content[last.dictionary_page_offset : last.dictionary_page_offset + 40] = bytes(40)
    path.write_bytes(content)
    return str(path)


@pytest.fixture
def source(tmp_path):
    """Writes rows to a file and returns a request for them."""

    def request(name, rows=None, write=write_jsonl, **settings):
        path = write(
            tmp_path / f"{name}.{'jsonl' if write is write_jsonl else 'parquet'}", rows or ROWS[name]
        )
        return SourceRequest(name=name, path=path, **settings)

    return request


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "prepared"


def only(report):
    (source,) = report.sources
    return source


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_all_sources_of_the_catalogue_are_prepared_from_local_files(write, source, folder, run):
    requests = [source(name, write=write) for name in USABLE]
    report = prepare(requests, folder, silent, run=run, overlap_words=0)
    assert [done.name for done in report.sources] == list(USABLE)
    for done in report.sources:
        assert sum(done.kept.values()) == done.rows == len(ROWS[done.name]), done.lines()
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        *(f"{name}.parquet" for name in USABLE),
    }


def test_training_data_is_split_by_its_questions_and_evaluation_data_is_all_test(source, folder):
    report = prepare([source("deepscaler"), source("aime24")], folder, silent)
    training, evaluation = report.sources
    assert set(training.kept) == {"train", "validation", "test"}
    assert training.kept["train"] > 0.8 * training.rows
    assert evaluation.kept == {"test": 3}


def test_the_split_of_a_question_does_not_depend_on_its_neighbours(source, folder, tmp_path):
    def split_of_questions(rows, place):
        prepare([source("deepscaler", rows)], place, silent)
        read = parquet.read_table(file_of(place, "deepscaler"), columns=["question", "split"])
        return {row["question"]: row["split"] for row in read.to_pylist()}

    whole = split_of_questions(DEEPSCALER, folder)
    half = split_of_questions(DEEPSCALER[::-2], tmp_path / "half")
    assert half.items() <= whole.items()


def test_every_reason_to_drop_a_row_is_counted_and_printed(source, folder):
    text = "words that an examination also uses in just this order and that run on for quite a while"
    rows = [
        {"problem": "What is 3 + 4?", "answer": "7"},
        {"problem": "What is  3 + 4?", "answer": "7"},
        {"problem": "No answer?", "answer": ""},
        {"problem": "", "answer": "1"},
        {"problem": "Which column?"},
        {"problem": f"See {text}.", "answer": "5"},
    ]
    validation = [{"problem": f"{text}!", "answer": "4"}]
    report = prepare([source("deepscaler", rows), source("aime24", validation)], folder, silent)
    training = report.sources[0]
    assert training.dropped == {
        "duplicate": 1,
        "no answer": 1,
        "no prompt": 1,
        "no answer column": 1,
        "overlaps an evaluation set": 1,
    }
    assert (training.rows, sum(training.kept.values())) == (6, 1)
    line, *examples = report.sources[0].lines()
    assert line.startswith("deepscaler: 6 rows; kept ")
    assert "duplicate 1" in line
    assert "  no answer: row 3, {'prompt': 'No answer?', 'answer': ''}" in examples
    assert len(examples) == 5


def test_a_row_that_cannot_be_read_or_written_is_counted_and_shown(folder, tmp_path):
    good = [
        json.dumps({"problem": f"What is {n} + {n}?", "answer": 2 * n if n % 2 else str(2 * n)})
        for n in range(9)
    ]
    bad = ['{"problem": "half a \\ud800 pair", "answer": "1"}', '{"problem": 1', "\\x1b[31m"]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*good[:5], *bad, *good[5:]]))
    done = only(prepare([SourceRequest(name="deepscaler", path=str(path))], folder, silent))
    assert done.rows == 12
    assert sum(done.kept.values()) == 9
    assert done.dropped == {
        "half a surrogate pair or bytes that are no UTF-8": 1,
        "a line that is no JSON": 2,
    }
    assert done.examples["a line that is no JSON"] == 'row 7, {"problem": 1'
    assert all(line.isprintable() for line in done.lines())
    assert (
        only(prepare([SourceRequest(name="deepscaler", path=str(path))], folder, silent)).lines()[1:]
        == done.lines()[1:]
    )


def test_where_no_row_can_be_used_the_first_one_is_shown(source, folder):
    with pytest.raises(
        DataError, match=r"a gold that fails its own verifier \(3\); row 1, .*no one \(knows'"
    ):
        prepare(
            [source("deepscaler", [{"problem": f"Why {n}?", "answer": "no one (knows"} for n in range(3)])],
            folder,
            silent,
        )


def test_data_of_ones_own_with_columns_of_its_own(folder, tmp_path):
    path = write_jsonl(
        tmp_path / "rows.jsonl", [{"q": f"{n} N on 2 kg?", "gold": f"{n / 2} m/s^2"} for n in range(9)]
    )
    request = SourceRequest(
        name="laws", kind="quantity", path=path, columns={"prompt": "q", "answer": "gold"}, limit=5
    )
    done = only(prepare([request], folder, silent))
    assert done.rows == sum(done.kept.values()) == 5
    assert DatasetTask("laws", folder).domain == "stem"


def test_progress_is_told_and_overlap_needs_an_evaluation_set(source, folder):
    told = []
    report = prepare([source("deepscaler")], folder, lambda name, rows: told.append((name, rows)))
    assert told[-1] == ("deepscaler", 60)
    assert "overlap" in report.lines()[-1]


def test_what_has_not_changed_is_not_redone(source, folder):
    requests = [source("deepscaler"), source("amc23")]
    first = prepare(requests, folder, silent)
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    second = prepare(requests, folder, silent)
    assert [done.redone for done in (*first.sources, *second.sources)] == [True, True, False, False]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")} == stamps
    assert [done.kept for done in second.sources] == [done.kept for done in first.sources]
    entry = json.loads((folder / "manifest.json").read_text())["sources"]["deepscaler"]
    assert (entry["sha256"], entry["rows"]) == (sha256(file_of(folder, "deepscaler")), 60)
    assert second.lines()[0].endswith("(unchanged)")


@pytest.mark.parametrize(
    "change",
    [
        lambda source: [source("deepscaler", DEEPSCALER[:40]), source("amc23")],
        lambda source: [source("deepscaler", limit=30), source("amc23")],
        lambda source: [source("deepscaler"), source("amc23", [*AMC, {"problem": "New?", "answer": 1.0}])],
        lambda source: [source("deepscaler"), source("amc23"), source("olympiadbench", OLYMPIAD)],
    ],
    ids=["other rows", "another limit", "another evaluation set", "one more evaluation set"],
)
def test_a_change_of_anything_it_depends_on_redoes_a_source(change, source, folder):
    prepare([source("deepscaler"), source("amc23")], folder, silent)
    assert prepare(change(source), folder, silent).sources[0].redone


def test_the_same_rows_at_another_place_are_not_redone(source, folder, tmp_path):
    prepare([source("deepscaler")], folder, silent)
    moved = write_jsonl(tmp_path / "moved.jsonl", DEEPSCALER)
    assert not only(prepare([SourceRequest(name="deepscaler", path=moved)], folder, silent)).redone


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("deepscaler.parquet", "damaged"),
        *(("manifest.json", text) for text in ("", "[]", '{"sources": []}', "{")),
    ],
)
def test_a_damaged_file_is_redone_and_an_unreadable_manifest_counts_as_none(file, content, source, folder):
    prepare([source("deepscaler")], folder, silent)
    (folder / file).write_text(content)
    assert only(prepare([source("deepscaler")], folder, silent)).redone


def test_a_failure_midway_leaves_the_sources_before_it_and_no_part_of_its_own(source, folder):
    bad = source("deepscaler", write=write_broken_at_the_end)
    with pytest.raises(DataError, match="cannot read"):
        prepare([source("amc23"), bad], folder, silent)
    assert set(read_manifest(folder)) == {"amc23"}
    assert {path.name for path in folder.iterdir()} == {"amc23.parquet", "manifest.json"}
    assert not prepare([source("amc23"), source("deepscaler")], folder, silent).sources[0].redone


def test_a_source_that_cannot_be_redone_is_not_left_stale(source, folder):
    prepare([source("deepscaler")], folder, silent)
    with pytest.raises(DataError, match="none of its 1 rows can be used: no answer"):
        prepare([source("deepscaler", [{"problem": "?", "answer": ""}])], folder, silent)
    assert not file_of(folder, "deepscaler").exists()
    assert read_manifest(folder) == {}


def test_training_can_see_that_what_it_needs_is_prepared_without_the_original_data(source, folder, tmp_path):
    request = source("deepscaler")
    with pytest.raises(DataError, match=r"deepscaler: not prepared .*prorl data prepare"):
        require_prepared([request], folder)
    prepare([request], folder, silent)
    (tmp_path / "deepscaler.jsonl").unlink()
    require_prepared([request], folder)
    with pytest.raises(DataError, match="deepscaler: not prepared"):
        require_prepared([SourceRequest(name="deepscaler", path=request.path, limit=3)], folder)


def test_the_needs_of_a_recipe_say_what_from_where_how_much_and_under_which_licence(
    source, folder, monkeypatch
):
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("asked the hub"))
    assert len(describe_needs([SourceRequest(name=name) for name in SOURCES], folder)) == len(SOURCES)
    requests = [
        SourceRequest(name="deepscaler", limit=100),
        SourceRequest(name="gpqa_diamond"),
        source("amc23"),
    ]
    prepare(requests[-1:], folder, silent)
    math, gpqa, amc = describe_needs(requests, folder)
    assert math == (
        "deepscaler [math, train] from the hub, agentica-org/DeepScaleR-Preview-Dataset, split train; "
        "40,315 rows as published, at most 100 of them read; licence MIT; not prepared (ProRL's math)"
    )
    assert "licence CC-BY-4.0, gated; not prepared" in gpqa
    assert f"from {requests[-1].path}" in amc
    assert "; prepared" in amc


# what makes a row unfit

PLANTED = "a lighthouse checkpointer counts seven ships and then nine more before the fog hides all of them"


def overlap(*questions, words=13):
    found = Overlap(words)
    for question in questions:
        found.add(question)
    return found


def drops(found, question):
    try:
        found.check(question)
    except Drop:
        return True
    return False


def test_a_planted_passage_is_found_whatever_surrounds_it():
    found = overlap(f"Problem 7. {PLANTED.upper()}! How many?")
    assert drops(found, f"In a story, {PLANTED.replace(' ', ', ')}")
    assert not drops(
        found, "a lighthouse checkpointer counts seven ships and then eight more before the fog hides two"
    )


def test_short_questions_overlap_only_as_a_whole():
    found = overlap("Solve x^2 = 9.")
    assert drops(found, "solve X^2=9")
    assert not drops(found, "Solve x^2 = 9 over the integers.")


def test_what_many_evaluation_questions_share_is_boilerplate():
    questions = [f"{PLANTED} and {n}" for n in range(SHARED_BY + 1)]
    assert drops(overlap(*questions[:-1]), PLANTED)
    assert not drops(overlap(*questions), PLANTED)


def test_zero_words_switches_it_off():
    assert not drops(overlap(PLANTED, words=0), PLANTED)


@given(st.text(min_size=1), st.integers(1, 20))
def test_every_question_overlaps_itself(question, words):
    assert drops(overlap(question, words=words), question)
