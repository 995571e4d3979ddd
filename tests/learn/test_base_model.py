"""The tiny base: an exact, reproducible tokenizer, training that teaches, and a cache of whole bases only."""

import json
import math
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from prorl.config.schema import ShapeConfig, WarmupConfig
from prorl.envs.types import Problem, Solution
from prorl.learn.base_model import (
    ASSISTANT,
    END,
    PAD,
    RECORD,
    SMALLEST,
    SPECIAL,
    USER,
    WEIGHT_DECAY,
    Example,
    Muon,
    build_base,
    build_model,
    jumped,
    orthogonalised,
    rate_factor,
    response_loss,
    train_tokenizer,
)
from prorl.learn.model import ModelError, context_limit, eos_ids, load_model, load_tokenizer
from prorl.learn.parallel import Here
from prorl.local.workers import Workers
from prorl.rollout.pipeline import TAGS

TEXTS = [f"Reverse the string: q{letter}x{number}." for number in range(30) for letter in "abcdefgh"]
VOCAB = 320


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, VOCAB)


@settings(max_examples=50)
@given(text=st.text().filter(lambda text: not any(token in text for token in SPECIAL)))
def test_decoding_gives_back_every_text(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_common_words_are_one_token_and_content_is_spelled_out(tokenizer):
    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("Reverse the string: qzstr417"))
    assert tokens == ["Reverse", "Ġthe", "Ġstring", ":", "Ġ", *"qzstr417"]


@given(numbers=st.lists(st.integers(0, 10**9), min_size=1))
def test_digits_stand_alone(tokenizer, numbers):
    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode(" ".join(map(str, numbers))))
    assert [token for token in tokens if token[-1].isdigit()] == list("".join(map(str, numbers)))


def test_tags_are_single_tokens_that_survive_and_special_tokens_do_not(tokenizer):
    for tag in TAGS:
        assert len(tokenizer.encode(tag)) == 1
    text = "".join(TAGS)
    assert tokenizer.decode(tokenizer.encode(USER + text + END), skip_special_tokens=True) == text
    assert (tokenizer.eos_token, tokenizer.pad_token) == (END, PAD)


def test_tags_and_special_tokens_of_the_corpus_teach_no_words():
    plain = train_tokenizer(["one two", "two one"] * 5, VOCAB)
    tagged = train_tokenizer(["<think>one two</think>", "two one<|im_end|>"] * 5, VOCAB)
    assert plain.get_vocab() == tagged.get_vocab()


def test_the_chat_template_marks_each_turn_once(tokenizer):
    turns = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3?"},
    ]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert text == f"{USER}1?{ASSISTANT}2{END}{USER}3?{ASSISTANT}"
    assert tokenizer.apply_chat_template(turns[:1], tokenize=False) == f"{USER}1?"


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_checkpoint_reloads_the_same_tokenizer(tokenizer, tmp_path, architecture):
    build_model(SHAPE.model_copy(update={"architecture": architecture}), len(tokenizer), 0).save_pretrained(
        tmp_path
    )
    tokenizer.save_pretrained(tmp_path)
    reloaded = AutoTokenizer.from_pretrained(tmp_path)
    text = USER + "Reverse the e\u0301string: ab12 .\n\n<think>it's 3</think>" + END
    assert reloaded.encode(text) == tokenizer.encode(text)
    assert reloaded.decode(reloaded.encode(text)) == text
    assert reloaded.chat_template == tokenizer.chat_template
    assert (reloaded.eos_token_id, reloaded.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)


@pytest.mark.parametrize("vocab_size", [SMALLEST, SMALLEST + 1, 300, 400])
def test_the_vocabulary_never_exceeds_what_was_asked_which_must_have_room_for_bytes(vocab_size):
    assert SMALLEST <= len(train_tokenizer(TEXTS, vocab_size)) <= vocab_size
    with pytest.raises(ModelError, match=f"need {SMALLEST}"):
        train_tokenizer(TEXTS, SMALLEST - 1)


SHAPE = ShapeConfig(
    architecture="llama", hidden_size=32, layers=1, heads=2, kv_heads=1, intermediate_size=64, context=40
)
SETTINGS = WarmupConfig(shape=SHAPE, vocab_size=300, steps=30, batch_size=20, lr=1e-2, corpus_problems=20)
SHORT = SETTINGS.model_copy(update={"steps": 2, "batch_size": 4})


def copy_problem(index):
    """Say the digit again."""
    digit = str(index % 10)
    return Problem(
        task="copy",
        domain="test",
        index=index,
        split="train",
        level=0,
        prompt=f"say {digit}",
        payload=digit,
        solution=Solution(steps=digit, answer=digit),
    )


def in_this_process(model):
    return nullcontext(Here([model]))


def on_two_workers(model):
    return closing(Workers([model], count=2, threads=torch.get_num_threads()))


def build(settings, cache, problem_at=copy_problem, **options):
    usual = {"fingerprint": "copy", "seed": 0, "progress": lambda *_: None, "computing": in_this_process}
    return build_base(settings, problem_at, cache, **(usual | options))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_thirty_steps_teach_a_trivial_task_and_the_checkpoint_is_ordinary(tmp_path, optimizer):
    told = []
    settings = SETTINGS.model_copy(update={"optimizer": optimizer})
    folder = build(settings, tmp_path, progress=lambda *report: told.append(report))
    losses = [loss for _, _, loss in told]
    assert [report[:2] for report in told] == [(step, 30) for step in range(1, 31)]
    assert losses[0] == pytest.approx(math.log(300), rel=0.1)  # a random model is uniform
    assert losses[-1] < 0.4 * losses[0]

    model, tokenizer = load_model(folder, dtype=torch.float32, device="cpu"), load_tokenizer(folder)
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert eos_ids(model.generation_config, tokenizer) == (tokenizer.eos_token_id,)
    assert context_limit(model) == SHAPE.context
    record = json.loads((folder / RECORD).read_text())
    assert record["losses"] == [round(loss, 4) for loss in losses]
    assert record["settings"]["shape"]["hidden_size"] == 32


@pytest.mark.usefixtures("one_thread")
def test_a_warm_up_ends_once_twenty_steps_reach_the_loss_asked_for(tmp_path):
    def losses(until_loss):
        folder = build(SETTINGS.model_copy(update={"until_loss": until_loss}), tmp_path)
        return json.loads((folder / RECORD).read_text())["losses"]

    whole = losses(0.0)
    assert losses(sum(whole[4:24]) / 20 + 1e-3) == whole[:24]


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_muon_steps_as_torch_s_does_but_for_its_rounding(shape):
    torch.manual_seed(0)
    start, gradients = torch.randn(shape), torch.randn(3, *shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = [
        Muon([ours], lr=0.1),
        torch.optim.Muon([theirs], lr=0.1, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"),
    ]
    for gradient in gradients:
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    assert (ours - theirs).norm() < 0.02 * (ours - start).norm()
    strengths = torch.linalg.svdvals(orthogonalised(gradients[0]))
    assert strengths.min() > 0.4
    assert strengths.max() < 1.3


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_same_settings_give_the_same_files_on_any_number_of_workers_once_per_cache(tmp_path, optimizer):
    calls = []
    settings = SHORT.model_copy(update={"optimizer": optimizer})
    one, again = (
        build(settings, tmp_path / "one", progress=lambda step, *_: calls.append(step)) for _ in range(2)
    )
    two = build(
        settings, tmp_path / "two", progress=lambda step, *_: calls.append(step), computing=on_two_workers
    )
    assert one == again
    assert calls == [1, 2] * 2
    assert sorted(file.name for file in one.iterdir()) == sorted(file.name for file in two.iterdir())
    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()


def test_every_setting_the_seed_and_the_fingerprint_make_another_base(tmp_path):
    changes = [
        {},
        {"shape": SHAPE.model_copy(update={"layers": 2})},
        {"vocab_size": 301},
        {"steps": 1},
        {"batch_size": 3},
        {"lr": 2e-2},
        {"position_jumps": 1},
        {"corpus_problems": 21},
    ]
    bases = {build(SHORT.model_copy(update=change), tmp_path) for change in changes}
    bases |= {build(SHORT, tmp_path, seed=1), build(SHORT, tmp_path, fingerprint="other")}
    assert len(bases) == len(changes) + 2


def test_an_interrupted_warm_up_leaves_nothing_and_the_next_one_succeeds(tmp_path):
    def interrupt(step, steps, loss):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(SHORT, tmp_path, progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    folder = build(SHORT, tmp_path)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_base_that_another_process_finishes_meanwhile_is_used(tmp_path):
    ours = tmp_path / "ours"

    def outrun(step, steps, loss):
        if step == steps:
            theirs = build(SHORT, tmp_path / "theirs")
            theirs.rename(ours / theirs.name)

    folder = build(SHORT, ours, progress=outrun)
    assert (folder / RECORD).is_file()
    assert list(ours.iterdir()) == [folder]


def test_problems_that_cannot_be_shown_are_skipped(tmp_path):
    def mixed(index):
        problem = copy_problem(index // 3)
        too_long = Solution(steps="7" * SHAPE.context, answer="7")
        return replace(problem, index=index, solution=(problem.solution, None, too_long)[index % 3])

    settings = SHORT.model_copy(update={"corpus_problems": 60})
    folders = [build(settings, tmp_path, copy_problem), build(settings, tmp_path, mixed, fingerprint="mixed")]
    plain, skipping = (json.loads((folder / RECORD).read_text())["losses"] for folder in folders)
    assert plain == skipping


def test_a_mixture_without_usable_solutions_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no solution that fits into the context of 40 tokens"):
        build(SHORT, tmp_path, lambda index: replace(copy_problem(index), solution=None))


def test_an_architecture_whose_tokenizer_cannot_be_kept_is_refused(tmp_path):
    qwen2 = SHAPE.model_copy(update={"architecture": "qwen2"})
    with pytest.raises(ModelError, match="llama or qwen3"):
        build(SHORT.model_copy(update={"shape": qwen2}), tmp_path)


def test_the_loss_is_the_sum_over_response_tokens_whatever_the_padding():
    model = build_model(SHAPE, 50, seed=0)
    batch = [
        Example(prompt=(1, 2, 3), response=(4, 5), positions=(0, 4, 5, 6, 17)),
        Example(prompt=(6,), response=(7, 8, 9, 10, 11, 12), positions=tuple(range(7))),
    ]
    expected = 0.0
    for example in batch:
        ids, positions = (
            torch.tensor([each]) for each in (example.prompt + example.response, example.positions)
        )
        logps = model(ids, attention_mask=torch.ones_like(ids), position_ids=positions)
        logps = logps.logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
        expected -= logps[len(example.prompt) - 1 :].sum().item()
    assert response_loss(model, batch).item() == pytest.approx(expected, rel=1e-5)
    assert response_loss(model, batch[::-1]).item() == pytest.approx(expected, rel=1e-5)


@given(length=st.integers(1, 30), most=st.integers(0, 5), spare=st.integers(0, 50), rng=st.randoms())
def test_jumps_of_position_skip_no_more_than_is_spare(length, most, spare, rng):
    positions = jumped(length, most, spare, rng)
    gaps = [after - before for before, after in pairwise((-1, *positions))]
    assert len(gaps) == length
    assert min(gaps) >= 1
    assert sum(gap > 1 for gap in gaps) <= most
    assert positions[-1] <= length - 1 + spare


@given(steps=st.integers(1, 500))
def test_the_learning_rate_rises_to_its_peak_and_falls_without_reaching_zero(steps):
    factors = [rate_factor(step, steps) for step in range(steps)]
    peak = factors.index(max(factors))
    assert max(factors) == 1.0
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert min(factors) > 0
