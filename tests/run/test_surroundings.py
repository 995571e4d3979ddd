"""What the bits of a result depend on: refused, told, or the same."""

import pytest

from prorl.envs.files import StorageError
from prorl.run.surroundings import changes, hash_files, require_same

THEN = {"torch": "2.13.0", "processor": "AVX2", "tokenizer": "aa", "problems": "bb"}


@pytest.mark.parametrize(
    ("name", "said"), [("tokenizer", "restore them"), ("problems", "restore the code or data")]
)
def test_a_run_does_not_go_on_without_its_tokenizer_and_its_problems(name, said):
    with pytest.raises(StorageError, match=said) as error:
        require_same(THEN, THEN | {name: "other"})
    assert "--branch" in str(error.value)


def test_what_was_never_recorded_is_not_missed():
    require_same({}, THEN)
    require_same(THEN, {})
    assert list(changes({}, THEN)) == []


def test_another_version_is_told_and_not_refused():
    now = THEN | {"torch": "2.13.1", "processor": "AVX512"}
    require_same(THEN, now)
    first, second = changes(THEN, now)
    assert first.startswith("processor was AVX2 and is now AVX512")
    assert second.startswith("torch was 2.13.0 and is now 2.13.1")


def test_a_hash_sees_names_and_contents(tmp_path):
    seen = set()
    for name, content in (("a", "1"), ("a", "2"), ("b", "2")):
        folder = tmp_path / str(len(seen))
        folder.mkdir()
        (folder / name).write_text(content)
        assert hash_files(folder) == hash_files(folder)
        seen.add(hash_files(folder))
    assert len(seen) == 3
