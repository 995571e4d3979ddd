"""The tutorial and the notebook, from the first block to the last, as a reader would do it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from prorl.learn.base_model import train_tokenizer

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w.]+)`:\s*\Z")
SECONDS = 400  # of a command, on a busy machine


def write_gpt2(folder: Path) -> None:
    """A random GPT-2 without a chat template, where the tutorial names the hub's."""
    tokenizer = train_tokenizer(["The capital of France?"] * 4, 300)
    tokenizer.chat_template = None
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def said(command: list[str], folder: Path, **given: Any) -> str:
    """What a command prints that is run in a folder and succeeds."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    ended = subprocess.run(
        command, cwd=folder, env=environment, timeout=SECONDS, capture_output=True, text=True, **given
    )
    assert ended.returncode == 0, (command, ended.stderr)
    return ended.stdout


@pytest.mark.slow
def test_every_block_of_the_tutorial_works(tmp_path):
    write_gpt2(tmp_path / "gpt2")
    text, files, printed = PAGE.read_text(), [], ""
    for block in BLOCK.finditer(text):
        language, content = block.groups()
        if named := FILE.search(text[: block.start()]):
            files.append(named[1])
            (tmp_path / named[1]).write_text(content)
        elif language == "sh":
            for command in content.splitlines():
                printed += said(command.split(), tmp_path)
    assert files == ["my_tasks.py", "my_recipe.yaml", "capitals.jsonl", "my_rewards.py", "my_data.yaml"]
    before, after = map(float, re.search(r"logic\s+100\s+([\d.]+)% → ([\d.]+)%", printed).groups())
    assert after > before + 5


@pytest.mark.slow
def test_the_cells_of_the_notebook_run(tmp_path):
    cells = json.loads((DOCS / "notebook.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert not any(cell["outputs"] for cell in code)
    # As a notebook's kernel does, not from a file: the processes that judge have no script to import.
    source = "\n".join("".join(cell["source"]) for cell in code)
    assert "done" in said([sys.executable, "-"], tmp_path, input=source)
