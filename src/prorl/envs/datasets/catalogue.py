"""The data sets this project knows: ProRL's training data, open substitutes, and the evaluation sets.

Invariant: this is all that is known of a source before it is read. Bump `VERSION` when a change here or in the
conversion makes other rows, so that what was prepared before is prepared anew.

Sources of the facts: the data sets' cards and the loaders of NeMo RL, NeMo Gym, lighteval and lm-eval. Columns are
looked up under several names, because mirrors and revisions differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

from prorl.envs.datasets.records import DataError, Kind, Layout, SourceRequest

VERSION = 2

Columns = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set: where it lies, how it is written, what it is for."""

    name: str
    domain: str
    layout: Layout
    use: Literal["train", "evaluation"]
    hub: str | None  # None: only from a local path
    config: str | None = None
    split: str = "train"
    columns: Columns  # field → patterns of column names, the first that is there wins
    optional: Columns = field(default_factory=dict)
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)  # optional field → values that are kept
    rows: int | None = None  # as published, after `where`
    licence: str = "unknown"
    gated: bool = False  # the hub asks for an accepted licence and a login
    note: str = ""


_QUESTION = ("problem", "question", "Problem", "Question", "prompt")
_ANSWER = ("answer", "Answer", "expected_answer", "final_answer")
_SHORT = MappingProxyType({"prompt": _QUESTION, "answer": _ANSWER})
_TESTS = MappingProxyType(
    {"prompt": ("prompt", "question"), "tests": ("reward_model", "ground_truth", "tests")}
)
_ABILITY = MappingProxyType({"ability": ("ability",)})
_INSTRUCTIONS = MappingProxyType(
    {"prompt": ("prompt",), "ids": ("instruction_id_list",), "arguments": ("kwargs",)}
)
_OPTIONS = MappingProxyType(
    {"prompt": ("responses_create_params", *_QUESTION), "options": ("options", "choices"), "answer": _ANSWER}
)

_TRAINING = (
    Source(
        name="deepscaler",
        domain="math",
        layout="short_answer",
        use="train",
        hub="agentica-org/DeepScaleR-Preview-Dataset",
        columns=_SHORT,
        rows=40_315,
        licence="MIT",
        note="ProRL's math",
    ),
    Source(
        name="eurus2_code",
        domain="code",
        layout="tests",
        use="train",
        hub="PRIME-RL/Eurus-2-RL-Data",
        columns=_TESTS,
        optional=_ABILITY,
        where={"ability": frozenset({"code"})},
        rows=26_758,
        licence="MIT",
        note="ProRL's code; the hub's file also holds 455,261 math rows, which are skipped",
    ),
    Source(
        name="scp_116k",
        domain="stem",
        layout="worked_solution",
        use="train",
        hub="EricLu/SCP-116K",
        columns={
            "prompt": _QUESTION,
            "solution": ("matched_solution", "solution", "*matched*solution", "*answer*"),
        },
        rows=274_000,
        licence="CC-BY-NC-SA-4.0",
        note="ProRL's STEM before its filter by GPT-4o, which cannot be repeated; not for commercial use",
    ),
    Source(
        name="webinstruct_verified",
        domain="stem",
        layout="typed_answer",
        use="train",
        hub="TIGER-Lab/WebInstruct-verified",
        columns={**_SHORT, "type": ("answer_type", "type")},
        licence="Apache-2.0",
        note="numbers, multiple choice and yes-or-no questions are kept",
    ),
    Source(
        name="nemotron_mcqa",
        domain="stem",
        layout="options",
        use="train",
        hub="nvidia/Nemotron-RL-knowledge-mcqa",
        columns=_OPTIONS,
        optional={"template": ("template_metadata",)},
        licence="Apache-2.0",
    ),
    Source(
        name="nemotron_instructions",
        domain="instruct",
        layout="instructions",
        use="train",
        hub="nvidia/Nemotron-RL-instruction_following",
        columns={**_INSTRUCTIONS, "prompt": ("prompt", "responses_create_params")},
        licence="Apache-2.0",
        note="in place of ProRL's part of Llama-Nemotron, whose columns are not published",
    ),
)

_EVALUATION = (
    Source(
        name="aime24",
        domain="math",
        layout="short_answer",
        use="evaluation",
        hub="HuggingFaceH4/aime_2024",
        columns=_SHORT,
        rows=30,
        licence="Apache-2.0",
    ),
    Source(
        name="aime25",
        domain="math",
        layout="short_answer",
        use="evaluation",
        hub="math-ai/aime25",
        split="test",
        columns=_SHORT,
        rows=30,
    ),
    Source(
        name="amc23",
        domain="math",
        layout="short_answer",
        use="evaluation",
        hub="AI-MO/aimo-validation-amc",
        columns=_SHORT,
        rows=83,
        licence="Apache-2.0",
        note="AMC 2022 and 2023; answers are written as floats",
    ),
    Source(
        name="math500",
        domain="math",
        layout="short_answer",
        use="evaluation",
        hub="HuggingFaceH4/MATH-500",
        split="test",
        columns=_SHORT,
        rows=500,
        licence="MIT",
    ),
    Source(
        name="minerva",
        domain="math",
        layout="short_answer",
        use="evaluation",
        hub="math-ai/minervamath",
        split="test",
        columns=_SHORT,
        rows=272,
        note="MIT OpenCourseWare problems, not lm-eval's set of the same name",
    ),
    Source(
        name="olympiadbench",
        domain="math",
        layout="short_answer",
        use="evaluation",
        hub="Hothan/OlympiadBench",
        config="OE_TO_maths_en_COMP",
        columns={"prompt": _QUESTION, "answer": ("final_answer", "answer")},
        optional={"tolerance": ("error",)},
        rows=674,
        licence="Apache-2.0",
    ),
    Source(
        name="eurus2_code_validation",
        domain="code",
        layout="tests",
        use="evaluation",
        hub="PRIME-RL/Eurus-2-RL-Data",
        split="validation",
        columns=_TESTS,
        optional=_ABILITY,
        where={"ability": frozenset({"code"})},
        rows=1_024,
        licence="MIT",
        note="what ProRL reports as APPS, CodeContests, Codeforces and TACO",
    ),
    Source(
        name="humaneval_plus",
        domain="code",
        layout="asserts",
        use="evaluation",
        hub="evalplus/humanevalplus",
        split="test",
        columns={
            "prompt": ("prompt",),
            "solution": ("canonical_solution",),
            "entry": ("entry_point",),
            "test": ("test",),
        },
        rows=164,
        licence="Apache-2.0",
    ),
    Source(
        name="livecodebench",
        domain="code",
        layout="contest",
        use="evaluation",
        hub="lighteval/code_generation_lite",
        config="release_v5",
        split="test",
        columns={
            "prompt": ("question_content",),
            "public": ("public_test_cases",),
            "private": ("private_test_cases",),
            "metadata": ("metadata",),
        },
        optional={"starter": ("starter_code",)},
        rows=880,
        note="the mirror in Parquet: the original needs a loading script",
    ),
    Source(
        name="gpqa_diamond",
        domain="stem",
        layout="distractors",
        use="evaluation",
        hub="Idavidrein/gpqa",
        config="gpqa_diamond",
        columns={
            "prompt": ("Question",),
            "answer": ("Correct Answer",),
            "wrong_1": ("Incorrect Answer 1",),
            "wrong_2": ("Incorrect Answer 2",),
            "wrong_3": ("Incorrect Answer 3",),
        },
        rows=198,
        licence="CC-BY-4.0",
        gated=True,
    ),
    Source(
        name="ifeval",
        domain="instruct",
        layout="ifeval",
        use="evaluation",
        hub="google/IFEval",
        columns=_INSTRUCTIONS,
        rows=541,
        licence="Apache-2.0",
        note="graded by its own checkers: pip install 'prorl[evaluations]'",
    ),
    Source(
        name="ifbench",
        domain="instruct",
        layout="ifbench",
        use="evaluation",
        hub="allenai/IFBench_test",
        columns=_INSTRUCTIONS,
        rows=300,
        licence="ODC-BY",
        note="graded by its own checkers: pip install 'prorl[evaluations]'",
    ),
)

SOURCES: Mapping[str, Source] = MappingProxyType(
    {source.name: source for source in (*_TRAINING, *_EVALUATION)}
)
"""Every known data set by name."""

_KINDS: Mapping[Kind, tuple[str, Layout, Columns]] = MappingProxyType(
    {
        "math": ("math", "short_answer", _SHORT),
        "quantity": ("stem", "quantity", _SHORT),
        "choice": ("stem", "options", _OPTIONS),
        "code": ("code", "tests", _TESTS),
        "instructions": ("instruct", "instructions", _INSTRUCTIONS),
    }
)


def resolve(request: SourceRequest) -> Source:
    """The source that a request means: of the catalogue by name, or the recipe's own by `kind` and `path`.

    Raises:
        DataError: an unknown name without a kind, a kind without a path, or a kind for a known name.
    """
    known = SOURCES.get(request.name)
    where = f"tasks.{request.name}"
    if known is not None:
        if request.kind is not None:
            raise DataError(
                f"{where}: a known data set, whose kind is fixed: drop `kind`, or choose another name"
            )
        return known
    if request.kind is None:
        near = get_close_matches(request.name, SOURCES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SOURCES)};"
        raise DataError(
            f"no data set {request.name!r}; {hint} for one of your own say {where}.kind and .path"
        )
    if request.path is None:
        raise DataError(f"{where}: a data set of your own needs a file: say {where}.path=FILE")
    domain, layout, columns = _KINDS[request.kind]
    return Source(
        name=request.name,
        domain=domain,
        layout=layout,
        use="train",
        hub=None,
        columns=columns,
        licence="your own",
    )
