"""A folder that can be trusted as a whole: written aside, listed in a manifest with hashes, renamed into place.

Checkpoints and references are sealed folders. Under its final name such a folder was once complete on disk;
`verify` finds everything that happened to it later. The manifest carries a hash of itself.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prorl.envs.files import (
    TEMPORARY,
    StorageError,
    encode_json,
    explain_no_room,
    fsync,
    fsync_tree,
    sha256,
    temporary_name,
    write_atomic,
)

MANIFEST = "manifest.json"
FORMAT = 2
_REPLACED = ".replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a sealed folder says about itself."""

    name: str  # of the folder
    about: dict[str, Any]
    files: dict[str, dict[str, Any]]  # path inside the folder → {"size": bytes, "sha256": hex}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(int(entry["size"]) for entry in self.files.values())

    @property
    def digest(self) -> str:
        """One hash of the whole content: SHA-256 over the path and hash of every file."""
        return hashlib.sha256(
            encode_json({path: entry["sha256"] for path, entry in sorted(self.files.items())})
        ).hexdigest()


def seal(target: Path, fill: Callable[[Path], None], about: Mapping[str, Any]) -> Manifest:
    """Let `fill` write files into a temporary folder, then make it `target`, replacing what stood there.

    Raises:
        StorageError: no room.
        Exception: whatever `fill` raises; in every case `target` is as it was and nothing stays behind.
    """
    aside = temporary_name(target)
    aside.mkdir(parents=True)
    try:
        with explain_no_room(target):
            fill(aside)
            if (aside / MANIFEST).exists():
                raise ValueError(f"{MANIFEST} is the seal of {target.name}; call that file something else")
            manifest = Manifest(name=target.name, about=dict(about), files=_list(aside))
            write_atomic(aside / MANIFEST, _encode(manifest))
            fsync_tree(aside)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    old = target.with_name(f".{target.name}{_REPLACED}")
    if target.exists():
        target.rename(old)
    aside.rename(target)
    fsync(target.parent)
    shutil.rmtree(old, ignore_errors=True)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a sealed folder, itself checked; the files are not.

    Raises:
        StorageError: missing or damaged, of a folder of another name, or in a format that this version does not know.
    """
    try:
        body = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(f"{folder}: the manifest cannot be read ({error})") from error
    if not isinstance(body, dict):
        raise StorageError(f"{folder}: the manifest is damaged")
    if body.get("format") != FORMAT:
        raise StorageError(
            f"{folder} has format {body.get('format')} and this version of prorl reads {FORMAT}; "
            "use the version that wrote it"
        )
    if body.pop("sha256", None) != _hash(body):
        raise StorageError(f"{folder}: the manifest is damaged")
    if body["name"] != folder.name:
        raise StorageError(f"{folder} is a copy of {body['name']} under another name")
    return Manifest(name=body["name"], about=body["about"], files=body["files"])


def verify(folder: Path, *, hashes: bool = True) -> Manifest:
    """The manifest, after every file was found to be as it was sealed: size, and content unless `hashes=False`.

    Raises:
        StorageError: names the first file that is missing or differs.
    """
    manifest = read_manifest(folder)
    for name, entry in manifest.files.items():
        path = folder / name
        try:
            whole = path.stat().st_size == entry["size"] and (not hashes or sha256(path) == entry["sha256"])
        except OSError as error:
            raise StorageError(f"{folder}: {name} cannot be read ({error.strerror})") from error
        if not whole:
            raise StorageError(f"{folder}: {name} is damaged")
    return manifest


def remove(folder: Path) -> None:
    """Delete a sealed folder; it loses its name first, so that a half-deleted one is never taken for whole.

    Raises:
        OSError: it could not be renamed or deleted.
    """
    doomed = temporary_name(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def tidy(parent: Path) -> None:
    """Remove what a killed writer left unfinished; only for the one process that may write here."""
    for path in parent.glob(f".*{_REPLACED}"):
        final = path.with_name(path.name.removeprefix(".").removesuffix(_REPLACED))
        if final.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:  # the writer was killed between the two renames of a replacement: the old one is still whole
            path.rename(final)
    for path in parent.glob(f".*{TEMPORARY}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def stands(path: Path, about: Mapping[str, Any]) -> bool:
    """Whether a whole folder, sealed with exactly these words, is there already."""
    try:
        return verify(path).about == about
    except StorageError:
        return False


def sealed_by(path: Path, position: int) -> bool:
    """Whether the folder has a sound manifest and was sealed when the journal was no longer than `position`."""
    try:
        return bool(read_manifest(path).about["journal_size"] <= position)
    except StorageError:
        return False


def has_all_files(path: Path) -> bool:
    """Whether every file is there in its size; hashes are not read."""
    try:
        verify(path, hashes=False)
    except StorageError:
        return False
    return True


def _list(folder: Path) -> dict[str, dict[str, Any]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in paths
    }


def _encode(manifest: Manifest) -> bytes:
    body = {"format": FORMAT, "name": manifest.name, "about": manifest.about, "files": manifest.files}
    return encode_json({**body, "sha256": _hash(body)}, indent=1)


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_json(body)).hexdigest()
