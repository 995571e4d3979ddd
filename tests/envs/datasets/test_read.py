"""What the catalogue says of its sources, and reading their rows from files and from the hub."""

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from prorl.envs.datasets.catalogue import SOURCES, DataError, Drop, SourceRequest, read, resolve
from support.data_rows import DEEPSCALER, ROWS, write_jsonl, write_parquet

DOMAINS = {"math", "code", "stem", "instruct"}


def test_every_source_says_where_it_lies_and_what_it_may_be_used_for():
    assert set(ROWS) == set(SOURCES)
    for source in SOURCES.values():
        assert source.hub.count("/") == 1
        assert source.domain in DOMAINS
        assert set(source.where) <= set(source.optional)
        assert not set(source.columns) & set(source.optional)
    assert {source.domain for source in SOURCES.values() if source.use == "train"} == DOMAINS


def test_a_data_set_of_ones_own_trains():
    source = resolve(SourceRequest(name="mine", kind="code", path="rows.jsonl"))
    assert (source.use, source.domain, source.hub) == ("train", "code", None)


def test_a_known_data_set_has_a_kind_of_its_own():
    with pytest.raises(DataError, match="drop `kind`"):
        resolve(SourceRequest(name="aime24", kind="math", path="x"))


def rows(name="deepscaler", **settings):
    return [row for _, row in read(SourceRequest(name=name, **settings))]


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
@pytest.mark.parametrize("name", SOURCES)
def test_the_fields_of_every_source_are_found_in_its_own_schema(name, write, tmp_path):
    path = write(tmp_path / ("rows.jsonl" if write is write_jsonl else "rows.parquet"), ROWS[name])
    found = rows(name, path=path)
    assert len(found) == len(ROWS[name])
    assert set(SOURCES[name].columns) <= set(found[0])


def test_csv_is_read_too_and_a_limit_is_the_number_of_rows_read(tmp_path):
    (tmp_path / "rows.csv").write_text('problem,answer\n"one, two",3\n')
    assert rows(path=str(tmp_path / "rows.csv")) == [{"prompt": "one, two", "answer": "3"}]
    assert len(rows(path=write_jsonl(tmp_path / "rows.jsonl", DEEPSCALER), limit=7)) == 7


def test_rows_of_a_file_that_belong_to_something_else_are_passed_over_and_use_up_no_limit(tmp_path):
    code = ROWS["eurus2_code"]
    path = write_jsonl(tmp_path / "rows.jsonl", [{**code[0], "ability": "math"}] * 120 + list(code))
    assert [row["ability"] for row in rows("eurus2_code", path=path)] == ["code", "code"]
    assert len(rows("eurus2_code", path=path, limit=1)) == 1


def test_columns_of_other_names_are_named_by_the_recipe(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"q": "1+1?", "gold": "2", "answer": "3"}])
    (row,) = rows(path=path, columns={"prompt": "q", "answer": "gold"})
    assert row == {"prompt": "1+1?", "answer": "2"}
    for columns, sentence in (
        ({}, r"no column problem or .*only answer, gold, q.*columns\.prompt=COLUMN"),
        ({"prompt": "fraage"}, "no column fraage"),
        ({"promt": "problem"}, "no field promt; the fields are prompt, answer"),
    ):
        with pytest.raises(DataError, match=sentence):
            rows(path=path, columns=columns)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("rows.json", "[{'problem': 1}]", "cannot read"),
        ("rows.json", "[" * 100_000, "cannot read"),
        ("rows.jsonl", "{}\n", "only empty rows"),
        ("rows.parquet", "not parquet", "cannot read"),
        ("rows.txt", "x", "as Parquet, JSON, JSONL or CSV"),
        ("rows.jsonl", "", "holds no rows"),
        ("rows.csv", 'problem,answer\n1,1\n"2+2?,4\n3+3?,6\n', r"line 3: .*double the quotes"),
        ("rows.csv", "problem,answer,answer\n1,1,2\n", "more than one column is called 'answer'"),
        ("rows.csv", 'problem,answer\n1,1\n"2" + 2?,4\n3+3?,6\n', r"line 3: .*double the quotes"),
    ],
)
def test_an_unreadable_file_is_one_sentence(name, content, sentence, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=sentence):
        rows(path=str(tmp_path / name))
    with pytest.raises(DataError, match="is no file or folder with rows"):
        rows(path=str(tmp_path / "absent.jsonl"))


def test_a_cell_that_python_cannot_hold_is_one_sentence(tmp_path):
    days = pyarrow.array([2**31 - 1], type=pyarrow.date32())
    cells = {"problem": ["1+1?"], "answer": ["2"], "until": days}
    parquet.write_table(pyarrow.table(cells), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"cannot read .*days=2147483647"):
        rows(path=str(tmp_path / "rows.parquet"))


OLYMPIAD = (
    "Hothan/OlympiadBench, config OE_TO_maths_en_COMP, split train: no route to the hub)",
    "hf download Hothan/OlympiadBench --repo-type dataset --local-dir DIR",
    "tasks.olympiadbench.path=DIR",
)
OWN = {"kind": "math", "path": "data/tarin"}


@pytest.mark.parametrize(
    ("name", "own", "parts"),
    [
        ("olympiadbench", {}, OLYMPIAD),
        ("gpqa_diamond", {}, ["hf auth login"]),
        ("mine", OWN, ["no route to the hub; data/tarin is no file or folder here either)"]),
    ],
)
def test_the_hub_out_of_reach_says_what_to_download_and_where_to_put_it(name, own, parts, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("no route to the hub\nand much more")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError) as error:
        rows(name, **own)
    assert [part for part in parts if part not in str(error.value)] == []
    assert "much more" not in str(error.value)


def test_the_hub_is_asked_for_the_split_the_revision_and_no_more_than_the_limit(monkeypatch):
    asked = {}

    def load(hub, config, **settings):
        asked.update(settings, hub=hub, config=config)
        return iter(DEEPSCALER)

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(rows("math500", limit=4, revision="abc")) == 4
    repository = {"hub": "HuggingFaceH4/MATH-500", "config": None, "split": "test", "revision": "abc"}
    assert asked == {**repository, "streaming": True}


def test_a_folder_as_downloaded_from_the_hub_is_read_by_its_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "repository" / "data"
    folder.mkdir(parents=True)
    for split, rows_of_it in (("train", DEEPSCALER[:5]), ("test", DEEPSCALER[5:8])):
        write_jsonl(folder / f"{split}.jsonl", rows_of_it)
    path = str(folder.parent)
    assert len(rows("math500", path=path)) == 3
    with pytest.raises(DataError, match=r"tasks\.eurus2_code_validation\.path=FILE"):
        rows("eurus2_code_validation", path=path)


@pytest.mark.parametrize(
    "text", ['[{"problem": "1+1?", "answer": 2}, 3]', '\n [\n{"problem": "1+1?",\n"answer": 2}\n, 3]']
)
def test_a_json_array_is_read_row_by_row(text, tmp_path):
    (tmp_path / "rows.json").write_text(text)
    row, broken = rows(path=str(tmp_path / "rows.json"))
    assert row == {"prompt": "1+1?", "answer": 2}
    assert isinstance(broken, Drop)


def test_a_csv_row_with_too_many_cells_or_a_very_long_one(tmp_path):
    (tmp_path / "rows.csv").write_text(f"problem,answer\n1+1?,2,3\n{'x' * 200_000},5\n")
    broken, long = rows(path=str(tmp_path / "rows.csv"))
    assert str(broken) == "more cells than columns"
    assert len(long["prompt"]) == 200_000


@pytest.mark.parametrize("choice", [{"split": "test"}, {"subset": "main"}])
def test_of_a_single_file_nothing_can_be_chosen(choice, tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"question": "?", "answer": "1"}])
    with pytest.raises(DataError, match="is one file, of which `subset` and `split` choose nothing"):
        rows(path=path, **choice)


def test_a_column_that_is_not_inside_another_is_said(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"question": "?", "gold": {"capital": "Rome"}}])
    with pytest.raises(DataError, match=r"has no column gold\.captial, only gold, gold\.capital, question"):
        rows("mine", path=path, columns={"answer": "gold.captial"}, kind="math")


@pytest.mark.parametrize(
    ("name", "text"),
    [("rows.csv", "problem,answer\na,1\n"), ("rows.json", '[{"problem": "a", "answer": "1"}]')],
)
def test_a_mark_of_the_byte_order_is_no_part_of_a_file(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8-sig")
    assert rows(path=str(path)) == [{"prompt": "a", "answer": "1"}]


@pytest.mark.parametrize("other", ["rows.json", "rows.jsonl", "rows.csv", "rows.jsonl.gz"])
def test_a_folder_of_several_kinds_of_files_is_refused(tmp_path, other):
    write_parquet(tmp_path / "b.parquet", [{"prompt": "b", "answer": "2"}])
    (tmp_path / other).touch()
    kind = other.removeprefix("rows").removesuffix(".gz")
    with pytest.raises(
        DataError, match=rf"holds rows as {kind} and .parquet, of which one kind would be read: keep one"
    ):
        rows("mine", kind="math", path=str(tmp_path))


def test_json_and_jsonl_are_one_kind_and_what_describes_a_data_set_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "rows"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", [{"prompt": "a", "answer": "1"}])
    (folder / "b.json").write_text('[{"prompt": "b", "answer": "2"}]')
    assert [row["prompt"] for row in rows("mine", kind="math", path=str(folder))] == ["a", "b"]
    (folder / "b.json").unlink()
    write_parquet(folder / "a.parquet", [{"prompt": "c", "answer": "3"}])
    (folder / "a.jsonl").unlink()
    (folder / "dataset_infos.json").write_text("{}")
    (folder / ".vscode").mkdir()
    (folder / ".vscode" / "settings.json").write_text("{}")
    assert [row["prompt"] for row in rows("mine", kind="math", path=str(folder))] == ["c"]


def test_dots_name_a_column_inside_another(tmp_path):
    said = [{"role": "user", "content": "No commas."}]
    nested = {"input": said, "args": {"ids": ["a"], "deep": {"kwargs": [{}]}}}
    path = write_jsonl(tmp_path / "rows.jsonl", [nested, {**nested, "args": None}])
    columns = {"prompt": "input", "ids": "args.ids", "arguments": "args.deep.kwargs"}
    whole, without = rows("nemotron_instructions", path=path, columns=columns)
    assert whole == {"prompt": said, "ids": ["a"], "arguments": [{}]}
    assert without == {"prompt": said}
