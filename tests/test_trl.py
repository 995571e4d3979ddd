"""Our verifiers and reference resets in a real run of TRL's `GRPOTrainer`."""

import math
import warnings
from pathlib import Path

import pytest
import torch

from prorl.envs import task, task_rows, trl_reward, verl_score
from prorl.envs.errors import ProrlError
from support.tiny import write_model


def test_a_reward_function_for_trl_grades_by_kind():
    reward = trl_reward("math")
    assert reward.__name__ == "prorl_math"
    completions = [r"\boxed{4}", [{"role": "assistant", "content": r"\boxed{5}"}], "I do not know"]
    assert reward(["2+2?"] * 3, completions, answer=["4"] * 3, completion_ids=[[1]] * 3) == [1.0, 0.0, 0.0]
    assert trl_reward("choice", answer="gold")(
        ["?"], [r"\boxed{B}"], gold=["B"], options=[["neon", "iron"]]
    ) == [1.0]


def test_a_reward_function_for_trl_judges_the_problems_of_a_task():
    countdown = task("countdown")
    rows = list(task_rows(countdown, 5))
    assert rows == list(task_rows(countdown, 5))
    answers = [countdown.problem(row["index"], row["split"]).solution.answer for row in rows]
    columns = {name: [row[name] for row in rows] for name in ("index", "split", "level")}
    prompts = [row["prompt"] for row in rows]
    right = [f"<answer>{answer}</answer>" for answer in answers]
    assert trl_reward(countdown)(prompts, right, **columns) == [1.0] * 5
    assert trl_reward(countdown)(prompts, [""] * 5, **columns) == [0.0] * 5


@pytest.mark.parametrize(
    ("judge", "columns", "sentence"),
    [
        ("math", {}, r'no column answer: say which one it is, trl_reward\(…, answer="COLUMN"'),
        ("choice", {"answer": ["B"]}, r'no column options: .*options="COLUMN"'),
        (task("countdown"), {"level": [1]}, "no column index and no split: train on the rows that task_rows"),
    ],
)
def test_a_column_that_is_missing_is_named(judge, columns, sentence):
    with pytest.raises(ProrlError, match=sentence):
        trl_reward(judge)(["?"], ["x"], **columns)


def test_a_kind_that_is_none_is_refused_before_it_judges():
    with pytest.raises(ProrlError, match="no kind 'mth'; the kinds are math"):
        trl_reward("mth")


def test_what_cannot_be_judged_is_none_and_no_zero(monkeypatch):
    countdown = task("countdown")
    monkeypatch.setattr(countdown, "score", lambda payload, answer: 1 / 0)
    (row,) = task_rows(countdown, 1)
    columns = {name: [row[name]] for name in ("index", "split")}
    assert trl_reward(countdown)([row["prompt"]], ["<answer>1</answer>"], **columns) == [None]


def test_verl_s_signature():
    assert verl_score("gsm8k", r"\boxed{4}", "4")["score"] == 1.0
    assert verl_score("x", r"\boxed{4}", "4", extra_info={"kind": "quantity"})["answered"] == 1.0
    options = {"kind": "choice", "options": ["neon", "iron"]}
    assert verl_score("x", r"\boxed{A}", "B", extra_info=options) == {
        "score": 0.0,
        "answered": 1.0,
        "judged": 1.0,
    }


@pytest.fixture
def make_trainer(tmp_path: Path):
    """A real GRPOTrainer on a random model and problems of ours, and its callback."""
    pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from prorl.trl import ReferenceResetCallback

    warnings.filterwarnings("ignore")
    folder = write_model(tmp_path / "model", "llama")

    def make(steps: int = 4, *, beta: float = 0.1, **rules):
        rows = Dataset.from_list(list(task_rows(task("arithmetic", {1: 1}), 16)))
        settings = {
            "per_device_train_batch_size": 4,
            "num_generations": 4,
            "max_completion_length": 8,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "save_steps": 1,
            "max_steps": steps,
            "beta": beta,
            "use_cpu": True,
            "report_to": [],
            "seed": 0,
            "bf16": False,
            "disable_tqdm": True,
        }

        def brevity(prompts, completions, completion_ids, **columns):
            return [-float(len(ids)) for ids in completion_ids]

        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=[trl_reward(task("arithmetic")), brevity],
            args=GRPOConfig(output_dir=str(tmp_path / "out"), **settings),
            train_dataset=rows,
        )
        callback = ReferenceResetCallback(trainer, cooldown=0, **rules)
        trainer.add_callback(callback)
        return trainer, callback

    return make


def weights(model) -> torch.Tensor:
    return torch.cat([weight.detach().flatten().clone() for _, weight in sorted(model.named_parameters())])


@pytest.mark.slow
def test_the_reference_of_trl_is_reset_by_schedule_and_survives_a_checkpoint(make_trainer, tmp_path):
    trainer, callback = make_trainer(4, every=3)
    born = weights(trainer.ref_model)
    trainer.train()
    assert callback.resets == [(3, "schedule")]
    reset = weights(trainer.ref_model)
    assert not torch.equal(reset, born)
    later = weights(trainer.accelerator.unwrap_model(trainer.model))  # of one step more
    assert not torch.equal(reset, later)
    assert any("rewards/prorl_arithmetic/mean" in entry for entry in trainer.state.log_history)

    again, restored = make_trainer(6, every=3)
    assert torch.equal(weights(again.ref_model), born)
    restored.restore(tmp_path / "out" / "checkpoint-4")
    assert torch.equal(weights(again.ref_model), reset)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert restored.resets == [(3, "schedule"), (6, "schedule")]
    assert torch.equal(weights(again.ref_model), weights(again.accelerator.unwrap_model(again.model)))


@pytest.mark.slow
@pytest.mark.parametrize("clear", [True, False])
def test_a_high_kl_resets_and_the_optimizer_is_cleared_only_where_asked(make_trainer, clear):
    trainer, callback = make_trainer(4, kl_ceiling=0.0, kl_count=2, kl_window=2, clear_optimizer=clear)
    trainer.train()
    assert callback.resets
    assert callback.resets[0][1] == "kl_ceiling"
    steps = {int(state["step"]) for state in trainer.optimizer.state.values()}
    assert steps == ({4 - callback.resets[-1][0]} if clear and callback.resets[-1][0] < 4 else steps)
    assert bool(steps) == (not clear or callback.resets[-1][0] < 4)


@pytest.mark.slow
def test_stalled_evaluations_reset_once_per_stall(make_trainer):
    trainer, callback = make_trainer(1, stalled_evaluations=2)
    state = trainer.state
    for step, value in enumerate((0.5, 0.4, 0.4, 0.4, 0.6, 0.6, 0.6), start=1):
        state.global_step = step
        callback.on_evaluate(trainer.args, state, None, metrics={"eval_reward": value})
        callback.on_step_end(trainer.args, state, None)
    assert callback.resets == [(3, "stalled_validation"), (7, "stalled_validation")]


@pytest.mark.slow
def test_the_kl_to_a_reference_that_was_just_replaced_counts_no_more(make_trainer):
    trainer, callback = make_trainer(1, kl_ceiling=0.1, kl_count=2, kl_window=2)
    for step in range(1, 8):
        trainer.state.global_step = step
        callback.on_step_end(trainer.args, trainer.state, None)
        # TRL logs after the end of the step.
        callback.on_log(trainer.args, trainer.state, None, logs={"kl": 0.66})
    assert callback.resets == [(3, "kl_ceiling"), (6, "kl_ceiling")]


@pytest.mark.slow
def test_what_could_not_be_measured_counts_as_nothing(make_trainer):
    """TRL says None, or NaN, where no response of a step could be judged."""
    trainer, callback = make_trainer(1, stalled_evaluations=2, kl_ceiling=0.1, kl_count=1)
    for step, value in enumerate((math.nan, None, 0.4, 0.5, None, 0.6), start=1):
        trainer.state.global_step = step
        callback.on_log(trainer.args, trainer.state, None, logs={"kl": None if step % 2 else math.nan})
        callback.on_evaluate(trainer.args, trainer.state, None, metrics={"eval_reward": value})
        callback.on_step_end(trainer.args, trainer.state, None)
    assert callback.resets == []


@pytest.mark.slow
def test_a_trainer_without_a_reference_is_refused(make_trainer):
    with pytest.raises(ProrlError, match="set beta above 0"):
        make_trainer(beta=0.0)
    _, callback = make_trainer()
    with pytest.raises(ProrlError, match="holds no reference of this callback"):
        callback.restore("nowhere")
