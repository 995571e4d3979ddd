"""What a user installs: the wheel holds all that the package reads, and works away from the checkout."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]


def files(folder: Path) -> set[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder) for path in found}


def test_the_wheel_is_whole_and_works_away_from_the_checkout(tmp_path):
    def python(*arguments: str, cwd: Path, **variables: str) -> str:
        command = [sys.executable, *arguments]
        environment = os.environ | variables
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    python("-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path), cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    recipes = {Path("recipes", path) for path in files(ROOT / "recipes")}
    assert files(site / "prorl") == files(ROOT / "src" / "prorl") | recipes
    where = python("-c", "import prorl; print(prorl.__file__)", cwd=tmp_path, PYTHONPATH=str(site))
    assert Path(where.strip()).is_relative_to(site)
    assert "nano" in python(
        "-m", "prorl", "train", "nano", "--dry-run", cwd=tmp_path, PYTHONPATH=str(site), COLUMNS="80"
    )
