"""Durable writes: all or nothing, and clear words when there is no room."""

import errno
import json
import math
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.files import (
    StorageError,
    decode_json,
    encode_json,
    explain_no_room,
    free_bytes,
    fsync_tree,
    hash_folder,
    making,
    sha256,
    write_atomic,
)
from support.commands import files_limited_to


@pytest.mark.parametrize("data", ["größer\n", b"\x00\xff", ""])
def test_write_atomic_replaces_the_content(tmp_path, data):
    path = tmp_path / "file"
    path.write_text("old")
    write_atomic(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert list(tmp_path.iterdir()) == [path]


def test_no_room_leaves_the_old_content_and_says_what_to_do(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with files_limited_to(1000), pytest.raises(StorageError, match=r"file: .* free\); free some space"):
        write_atomic(path, b"x" * 100_000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def full():
    Path("/dev/full").write_bytes(b"x")


def wrapped():
    try:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    except OSError as error:
        raise RuntimeError("saving failed") from error


def foreign():
    raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("writer", [full, wrapped, foreign])
def test_no_room_is_recognised_however_the_writer_says_it(tmp_path, writer):
    with pytest.raises(StorageError, match="free some space"), explain_no_room(tmp_path):
        writer()


@pytest.mark.parametrize("error", [ValueError("other"), PermissionError(errno.EACCES, "denied")])
def test_other_errors_pass_through(tmp_path, error):
    with pytest.raises(type(error)) as caught, explain_no_room(tmp_path):
        raise error
    assert caught.value is error


def test_a_tree_is_synced_hashed_and_measured(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "abc").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("nowhere")
    fsync_tree(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "link"]
    published = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(tmp_path / "a" / "b" / "abc") == published
    assert free_bytes(tmp_path / "not" / "there") > 0


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_is_made_wholly_or_not_at_all(tmp_path, replaced):
    folder, old = tmp_path / "made", tmp_path / "old" if replaced else None
    for content, ended in (("first", bool), ("second", bool), ("third", full)):
        with suppress(OSError, StorageError), making(folder, old) as aside:
            (aside / "file").write_text(content)
            ended()
    assert (folder / "file").read_text() == ("second" if replaced else "first")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


TEXT = st.text().filter(lambda text: text not in {"NaN", "Infinity", "-Infinity"})
HALF_PAIRS = st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDBFF) | st.sampled_from("a\u2028\n"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON | HALF_PAIRS)
def test_json_comes_back_exactly_and_on_one_line(value):
    line = encode_json(value)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line) == decode_json(line) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_come_back_through_float(value):
    line = encode_json({"loss": [value]})
    stored = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["loss"][0]
    assert isinstance(stored, str)
    assert repr(float(stored)) == repr(value) == repr(decode_json(line)["loss"][0])


@pytest.mark.parametrize("value", [{1: "x"}, {"a": {None: 1}}, {"a": object()}, {"a": {1, 2}}])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(TypeError):
        encode_json(value)


def test_a_hash_sees_names_and_contents(tmp_path):
    seen = set()
    for name, content in (("a", "1"), ("a", "2"), ("b", "2")):
        folder = tmp_path / str(len(seen))
        folder.mkdir()
        (folder / name).write_text(content)
        assert hash_folder(folder) == hash_folder(folder)
        seen.add(hash_folder(folder))
    assert len(seen) == 3
