"""Rows of our own in the schemas of the public data sets: two or more per source, all of them usable."""

import base64
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prorl.envs.datasets.catalogue import SourceRequest
from prorl.envs.datasets.prepare import DatasetTask, prepare
from prorl.envs.types import Problem

Row = dict[str, Any]


def pack(tests: Sequence[Mapping[str, str]]) -> str:
    """Private tests as LiveCodeBench packs them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Name your [ACTIONS]."}, {"role": "user", "content": text}]


def eurus(question: str, ability: str = "code", **tests: Any) -> Row:
    asked = f"{question}\n\nWrite Python code to solve the problem. Present the code in \n```python\nYour code\n```\n"
    return {
        "data_source": "ours",
        "prompt": chat(asked + "at the end."),
        "ability": ability,
        "reward_model": {"ground_truth": json.dumps(tests), "style": "rule"},
    }


def table(columns: Sequence[str], *rows: Sequence[Any]) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


HUMANEVAL_TEST = """
import numpy as np

def is_floats(x):
    return isinstance(x, float) or isinstance(x, np.ndarray)

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        np.testing.assert_allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp

def check(candidate):
    inputs = [[[3, 1, 2]], [[]], [[5, 5]]]
    results = [[1, 2, 3], [], [5, 5]]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""

DEEPSCALER = table(
    ("problem", "answer", "solution"),
    *(
        (f"A crate holds {n} apples and {n + 2} pears. How many fruits?", str(2 * n + 2), "")
        for n in range(60)
    ),
)
EURUS = [
    eurus("Read two integers and print their sum.", inputs=["1 2\n", "5 6\n"], outputs=["3\n", "11\n"]),
    eurus("Write `twice`, which doubles it.", inputs=["4", "7"], outputs=["[8]", "[14]"], fn_name="twice"),
]
SCP = table(
    ("domain", "problem", "matched_solution", "is_qwq_solution_same_with_matched_solution"),
    (
        "Mechanics",
        "A cart of 2 kg is pushed with 6 N. Find its acceleration.",
        "By Newton's second law a = F/m, so the answer is \\boxed{3 m/s^2}.",
        True,
    ),
    ("Heat", "How many litres is 4.5 cubic decimetres?", "Answer: 4.5 L.", None),
)
WEBINSTRUCT = table(
    ("question", "answer", "answer_type", "category"),
    ("How many legs have seven beetles?", "42", "Integer", "Biology"),
    ("Mean of 1 and 2, as a decimal?", "1.5", "Float", "Maths"),
    ("Does ice float on water?", "Yes", "Boolean", "Physics"),
    ("Which one is a metal? A. Neon B. Iron C. Sulphur", "B", "Multiple Choice", "Chemistry"),
)
_GAS = "Which gas do plants take up?\nA: Argon\nB: Carbon dioxide\n\nSay X"
MCQA = [
    {
        "responses_create_params": {"input": [{"role": "user", "content": _GAS}]},
        "options": [{"A": "Argon", "B": None}, {"A": None, "B": "Carbon dioxide"}],
        "expected_answer": "B",
        "template_metadata": {"template_prompt": "{problem}\n\nSay X"},
    }
]
NEMOTRON_IF = table(
    ("prompt", "instruction_id_list", "kwargs"),
    (
        "Describe a harbour at night without any commas, in lower case.",
        ["punctuation:no_comma", "change_case:english_lowercase"],
        [None, {"num_words": None}],
    ),
)
SHORT = [{"problem": f"What is {n} squared plus one?", "answer": n * n + 1} for n in range(3)]
AMC = [{"id": 0, "problem": "Find the number of days in twenty weeks.", "answer": 140.0, "url": "none"}]
OLYMPIAD = table(
    ("question", "final_answer", "error", "is_multiple_answer"),
    ("Solve x^2 = 9.", ["$3$", "$-3$"], None, True),
    ("Give the root of two to one place.", ["$1.4$"], "1e-1", None),
)
HUMANEVAL = [
    {
        "task_id": "Ours/0",
        "prompt": 'def ordered(values):\n    """Return the values in ascending order."""\n',
        "canonical_solution": "    return sorted(values)\n",
        "entry_point": "ordered",
        "test": HUMANEVAL_TEST,
    }
]
CONTEST = table(
    ("question_content", "starter_code", "public_test_cases", "private_test_cases", "metadata"),
    (
        "Print the square of the number read.",
        "",
        json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}]),
        pack([{"input": "9\n", "output": "81\n", "testtype": "stdin"}]),
        "{}",
    ),
    (
        "Return the larger number.",
        "class Solution:\n    def larger(self, a: int, b: int) -> int:\n        ",
        json.dumps([{"input": "2\n5", "output": "5", "testtype": "functional"}]),
        pack([{"input": "8\n3", "output": "8", "testtype": "functional"}]),
        json.dumps({"func_name": "larger"}),
    ),
)
_PARTICLES = ("the proton", "the electron", "the photon", "the neutrino")
GPQA = table(
    ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
    *((f"Which particle is heaviest in case {n}?", *_PARTICLES) for n in range(8)),
)
_RAIN, _ASKED = "Write about rain.", ("key", "prompt", "instruction_id_list", "kwargs")
_UMBRELLA, _FOUR = {"keywords": ["umbrella"], "num_words": None}, {"N": 4, "keyword1": None}
IFEVAL = table(_ASKED, (1, f"{_RAIN} Use the word umbrella.", ["keywords:existence"], [_UMBRELLA]))
IFBENCH = table(_ASKED, ("1", f"{_RAIN} Include exactly 4 numbers.", ["count:numbers"], [_FOUR]))

ROWS: Mapping[str, Sequence[Row]] = {
    "deepscaler": DEEPSCALER,
    "eurus2_code": EURUS,
    "scp_116k": SCP,
    "webinstruct_verified": WEBINSTRUCT,
    "nemotron_mcqa": MCQA,
    "nemotron_instructions": NEMOTRON_IF,
    "aime24": SHORT,
    "aime25": SHORT,
    "amc23": AMC,
    "math500": SHORT,
    "minerva": SHORT,
    "olympiadbench": OLYMPIAD,
    "eurus2_code_validation": EURUS,
    "humaneval_plus": HUMANEVAL,
    "livecodebench": CONTEST,
    "gpqa_diamond": GPQA,
    "ifeval": IFEVAL,
    "ifbench": IFBENCH,
}
"""Rows of every source in the catalogue."""

USABLE = tuple(name for name in ROWS if name not in ("ifeval", "ifbench") or find_spec("opencompass"))
"""Sources that can be prepared in this environment."""


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as JSONL and return the path as a recipe would say it."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def prepared(folder: Path, rows: Sequence[Row], name: str = "mine", **asked: Any) -> DatasetTask:
    """Rows as a task, prepared into a folder as is asked."""
    request = SourceRequest(name=name, path=write_jsonl(folder / "rows.jsonl", rows), **asked)
    prepare([request], folder, lambda *_: None)
    return DatasetTask(name, folder / f"{name}.parquet")


def all_problems(task: DatasetTask) -> list[Problem]:
    splits = sorted(task.splits)
    return [task.problem(index, split) for split in splits for index in range(task.row_count(split))]


def write_parquet(path: Path, rows: Sequence[Row]) -> str:
    """Write rows as Parquet and return the path as a recipe would say it."""
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return str(path)
