"""Preparing: what is kept, dropped and redone, and what makes a row unfit."""

import json
from collections import Counter
from decimal import Decimal

import datasets
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prorl.envs.datasets import prepare as module
from prorl.envs.datasets.catalogue import SOURCES, DataError, SourceRequest
from prorl.envs.datasets.prepare import DatasetTask, describe_needs, read_about, require_prepared
from support.data_rows import AMC, DEEPSCALER, ROWS, write_jsonl, write_parquet


def prepare(requests, folder, told=lambda name, rows: None, **settings):
    return module.prepare(requests, folder, told, **settings)


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
        kind = "jsonl" if write is write_jsonl else "parquet"
        path = write(tmp_path / f"{name}.{kind}", rows or ROWS[name])
        return SourceRequest(name=name, path=path, **settings)

    return request


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "prepared"


def test_training_data_is_split_by_its_questions_evaluation_data_is_all_test_and_progress_is_told(
    source, folder
):
    told = []
    requests = [source("deepscaler"), source("aime24")]
    training, evaluation = prepare(requests, folder, lambda name, rows: told.append((name, rows)))
    assert told[-1] == ("deepscaler", 60)
    assert set(training.kept) == {"train", "validation", "test"}
    assert training.kept["train"] > 0.8 * training.rows
    assert evaluation.kept == {"test": 3}


def test_the_split_of_a_question_does_not_depend_on_its_neighbours(source, folder, tmp_path):
    def splits(rows, place):
        prepare([source("deepscaler", rows)], place)
        read = parquet.read_table(place / "deepscaler.parquet", columns=["question", "split"])
        return {(row["question"], row["split"]) for row in read.to_pylist()}

    assert splits(DEEPSCALER[::-2], tmp_path / "half") < splits(DEEPSCALER, folder)


def test_every_reason_to_drop_a_row_is_counted_with_the_first_such_row(source, folder):
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
    training, _ = prepare([source("deepscaler", rows), source("aime24", validation)], folder)
    assert training.dropped == {
        "duplicate": 1,
        "no answer": 1,
        "no prompt": 1,
        "no answer column": 1,
        "overlaps an evaluation set": 1,
    }
    assert (training.rows, sum(training.kept.values())) == (6, 1)
    assert training.examples["no answer"] == "row 3, {'prompt': 'No answer?', 'answer': ''}"
    assert training.examples.keys() == training.dropped.keys()


def test_a_row_that_cannot_be_read_or_written_is_counted_and_shown(folder, tmp_path):
    good = [
        json.dumps({"problem": f"What is {n} + {n}?", "answer": 2 * n if n % 2 else str(2 * n)})
        for n in range(9)
    ]
    bad = ['{"problem": "half a \\ud800 pair", "answer": "1"}', '{"problem": 1', "\\x1b[31m"]
    bad += ["[" * 5000, "\udcff\udcfe", "7"]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*good[:5], *bad, *good[5:]]), errors="surrogateescape")
    (done,) = prepare([SourceRequest(name="deepscaler", path=str(path))], folder)
    assert done.rows == 15
    assert sum(done.kept.values()) == 9
    assert done.dropped == {
        "half a surrogate pair or bytes that are no UTF-8": 1,
        "a line that is no JSON": 4,
        "no JSON object": 1,
    }
    assert done.examples["a line that is no JSON"] == 'row 7, {"problem": 1'
    assert all(example.isprintable() for example in done.examples.values())
    (again,) = prepare([SourceRequest(name="deepscaler", path=str(path))], folder)
    assert (again.redone, again.dropped, again.examples) == (False, done.dropped, done.examples)


def test_cells_of_parquet_that_json_cannot_hold_cost_their_row(source, folder):
    wanted = {"num_words": Decimal(300), "relation": "at least"}
    row = {"prompt": "Write.", "instruction_id_list": ["length_constraints:number_words"], "kwargs": [wanted]}
    with pytest.raises(DataError, match=r"cells of a type that JSON does not have \(1\); row 1"):
        prepare([source("mine", [row], write_parquet, kind="instructions")], folder)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("rows.jsonl", '[{"prompt": "1+1?", "answer": 2}]', r"no JSON object \(1\); row 1, \[{"),
        ("rows.jsonl", '{\n"prompt": "1+1?"\n}', r"a line that is no JSON \(3\); row 1, {"),
        ("rows.csv", "prompt,answer\na, b?,1\n", r"more cells than columns \(1\); row 1"),
    ],
)
def test_a_file_of_which_no_row_can_be_read_is_not_told_as_a_missing_column(
    name, content, sentence, folder, tmp_path
):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=rf"none of its \d rows can be used: {sentence}"):
        prepare([SourceRequest(name="mine", kind="math", path=str(tmp_path / name))], folder)


def test_data_of_ones_own_with_columns_of_its_own(source, folder):
    rows = [{"q": f"{n} N on 2 kg?", "gold": f"{n / 2} m/s^2"} for n in range(9)]
    columns = {"prompt": "q", "answer": "gold"}
    (done,) = prepare([source("laws", rows, kind="quantity", columns=columns, limit=5)], folder)
    assert done.rows == sum(done.kept.values()) == 5
    assert DatasetTask("laws", folder / "laws.parquet").domain == "stem"


def test_what_has_not_changed_is_not_redone(source, folder):
    requests = [source("deepscaler"), source("amc23")]
    first = prepare(requests, folder)
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    second = prepare(requests, folder)
    assert [done.redone for done in (*first, *second)] == [True, True, False, False]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")} == stamps
    assert [done.kept for done in second] == [done.kept for done in first]


def moved(source, place):
    path = write_jsonl(place / "moved.jsonl", DEEPSCALER)
    return [SourceRequest(name="deepscaler", path=path), source("amc23")]


@pytest.mark.parametrize(
    ("change", "redone"),
    [
        (lambda source, _: [source("deepscaler", DEEPSCALER[:40]), source("amc23")], True),
        (lambda source, _: [source("deepscaler", limit=30), source("amc23")], True),
        (
            lambda source, _: [source("deepscaler"), source("amc23", [*AMC, {"problem": "?", "answer": 1}])],
            True,
        ),
        (lambda source, _: [*map(source, ("deepscaler", "amc23", "olympiadbench"))], True),
        (moved, False),
    ],
    ids=["other rows", "another limit", "another evaluation set", "one more evaluation set", "another place"],
)
def test_a_change_of_anything_it_depends_on_redoes_a_source(change, redone, source, folder, tmp_path):
    prepare([source("deepscaler"), source("amc23")], folder)
    assert prepare(change(source, tmp_path), folder)[0].redone is redone


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"damaged",
        lambda content: b"",
        lambda content: content.replace(b"prorl.about", b"prorl.other"),
    ],
)
def test_a_damaged_file_is_redone(damage, source, folder):
    prepare([source("deepscaler")], folder)
    path = folder / "deepscaler.parquet"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    assert prepare([source("deepscaler")], folder)[0].redone
    assert path.read_bytes() == whole


@pytest.mark.parametrize("own", ["deepscaler", "aime24"])
def test_a_file_of_somebody_else_is_not_replaced(own, source, tmp_path):
    path = write_parquet(tmp_path / "deepscaler.parquet", ROWS[own])
    requests = (
        [SourceRequest(name="deepscaler", path=path)] if own == "deepscaler" else [source("deepscaler")]
    )
    content = (tmp_path / "deepscaler.parquet").read_bytes()
    with pytest.raises(DataError, match=r"deepscaler\.parquet is no prepared data, .* data=FOLDER"):
        prepare(requests, tmp_path)
    with pytest.raises(DataError, match="is no prepared data"):
        DatasetTask("deepscaler", tmp_path / "deepscaler.parquet")
    assert (tmp_path / "deepscaler.parquet").read_bytes() == content


def test_a_flipped_bit_is_noticed_or_changes_no_row(source, folder):
    prepare([source("deepscaler")], folder)
    path = folder / "deepscaler.parquet"
    whole, rows, about = path.read_bytes(), parquet.read_table(path), read_about(path, whole=True)
    for at in range(4, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        found = read_about(path, whole=True)
        assert found.get("fingerprint") != about["fingerprint"] or parquet.read_table(path).equals(rows)


def test_a_failure_midway_leaves_the_sources_before_it_and_no_part_of_its_own(source, folder):
    bad = source("deepscaler", write=write_broken_at_the_end)
    with pytest.raises(DataError, match="cannot read"):
        prepare([source("amc23"), bad], folder)
    assert {path.name for path in folder.iterdir()} == {"amc23.parquet"}
    assert not prepare([source("amc23"), source("deepscaler")], folder)[0].redone


def test_a_source_that_cannot_be_redone_is_not_left_stale_and_its_first_row_is_shown(source, folder):
    prepare([source("deepscaler")], folder)
    bad = source("deepscaler", [{"problem": f"Why {n}?", "answer": "no one (knows"} for n in range(3)])
    sentence = (
        r"none of its 3 rows can be used: a gold that fails its own verifier \(3\); row 1, .*no one \(knows'"
    )
    with pytest.raises(DataError, match=sentence):
        prepare([bad], folder)
    assert list(folder.iterdir()) == []


def test_training_can_see_that_what_it_needs_is_prepared_without_the_original_data(source, folder, tmp_path):
    request = source("deepscaler")
    with pytest.raises(DataError, match=r"deepscaler: not prepared .*prorl data prepare"):
        require_prepared([request], folder)
    prepare([request], folder)
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
    prepare(requests[-1:], folder)
    math, gpqa, amc = describe_needs(requests, folder)
    assert math == (
        "deepscaler [math, train] from the hub, agentica-org/DeepScaleR-Preview-Dataset, split train; "
        "40,315 rows as published, at most 100 of them read; licence MIT; not prepared (ProRL's math)"
    )
    assert "licence CC-BY-4.0, gated; not prepared" in gpqa
    assert f"from {requests[-1].path}" in amc
    assert "; prepared" in amc


def test_rows_that_are_not_where_a_recipe_says_are_told_apart_from_rows_not_prepared_yet(tmp_path):
    there, gone = tmp_path / "there.jsonl", tmp_path / "gone.jsonl"
    there.write_text('{"question": "1 + 1?", "answer": "2"}\n')
    requests = [SourceRequest(name=path.stem, kind="math", path=str(path)) for path in (there, gone)]
    ready, missing = describe_needs(requests, tmp_path / "data")
    assert ready.endswith("; not prepared")
    assert missing.endswith("; there is no such file or folder")


# what makes a row unfit

PLANTED = "a lighthouse checkpointer counts seven ships and then nine more before the fog hides all of them"


def overlaps(question, *evaluation):
    passages = Counter()
    for one in evaluation:
        passages.update(set(module.passages_of(one)))
    return module.overlaps(question, passages)


@pytest.mark.parametrize(
    ("question", "evaluation", "found"),
    [
        (f"In a story, {PLANTED.replace(' ', ', ')}", [f"Problem 7. {PLANTED.upper()}! How many?"], True),
        (PLANTED.replace("nine", "eight"), [PLANTED], False),
        ("solve X^2=9", ["Solve x^2 = 9."], True),
        ("Solve x^2 = 9 over the integers.", ["Solve x^2 = 9."], False),  # a short one only as a whole
        (PLANTED, [f"{PLANTED} and {n}" for n in range(module.SHARED_BY)], True),
        (PLANTED, [f"{PLANTED} and {n}" for n in range(module.SHARED_BY + 1)], False),  # boilerplate
    ],
)
def test_a_planted_passage_is_found_whatever_surrounds_it(question, evaluation, found):
    assert overlaps(question, *evaluation) is found


@given(st.text(min_size=1))
def test_every_question_overlaps_itself(question):
    assert overlaps(question, question)
