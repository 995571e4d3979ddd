"""The tiny base: an exact, reproducible tokenizer, training that is_informative, and a cache of whole bases only."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from prorl.envs.types import Problem, Solution
from prorl.learn.base_model import (
    ASSISTANT,
    END,
    PAD,
    RECORD,
    SMALLEST,
    SPECIAL,
    TAGS,
    USER,
    Example,
    ModelShape,
    WarmupSettings,
    build_base,
    build_model,
    cache_key,
    rate_factor,
    response_loss,
    train_tokenizer,
)
from prorl.learn.model import ModelError, context_limit, eos_ids, load_model, load_tokenizer

TEXTS = [f"Reverse the string: q{letter}x{number}." for number in range(30) for letter in "abcdefgh"]
VOCAB = 320


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, VOCAB)


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


def test_two_trainings_write_identical_files(tmp_path):
    for name in ("one", "two"):
        train_tokenizer(iter(TEXTS), VOCAB).save_pretrained(tmp_path / name)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


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
    shape = ModelShape(
        architecture=architecture,
        hidden_size=8,
        layers=1,
        heads=2,
        kv_heads=1,
        intermediate_size=8,
        context=16,
    )
    build_model(shape, len(tokenizer), 0).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    reloaded = AutoTokenizer.from_pretrained(tmp_path)
    text = USER + "Reverse the e\u0301string: ab12 .\n\n<think>it's 3</think>" + END
    assert reloaded.encode(text) == tokenizer.encode(text)
    assert reloaded.decode(reloaded.encode(text)) == text
    assert reloaded.chat_template == tokenizer.chat_template
    assert (reloaded.eos_token_id, reloaded.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)


@given(vocab_size=st.integers(SMALLEST, 400))
def test_the_vocabulary_never_exceeds_what_was_asked(vocab_size):
    assert SMALLEST <= len(train_tokenizer(TEXTS, vocab_size)) <= vocab_size


def test_a_vocabulary_without_room_for_bytes_is_refused():
    with pytest.raises(ModelError, match=f"need {SMALLEST}"):
        train_tokenizer(TEXTS, SMALLEST - 1)


SHAPE = ModelShape(
    architecture="llama", hidden_size=32, layers=1, heads=2, kv_heads=1, intermediate_size=64, context=40
)
SETTINGS = WarmupSettings(
    shape=SHAPE, vocab_size=300, steps=30, batch_size=20, learning_rate=1e-2, seed=0, corpus_problems=20
)
SHORT = replace(SETTINGS, steps=2, batch_size=4)


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


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_thirty_steps_teach_a_trivial_task_and_the_checkpoint_is_ordinary(tmp_path):
    losses: list[float] = []
    folder = build_base(
        SETTINGS,
        copy_problem,
        tmp_path,
        fingerprint="copy",
        progress=lambda step, steps, loss: (
            losses.append(loss) if (step, steps) == (len(losses) + 1, 30) else None
        ),
    )
    assert len(losses) == 30
    assert losses[0] == pytest.approx(math.log(300), rel=0.1)  # a random model is uniform
    assert losses[-1] < 0.4 * losses[0]

    model, tokenizer = load_model(folder, dtype=torch.float32, device="cpu"), load_tokenizer(folder)
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert eos_ids(model, tokenizer) == (tokenizer.eos_token_id,)
    assert context_limit(model) == SHAPE.context
    record = json.loads((folder / RECORD).read_text())
    assert record["losses"] == [round(loss, 4) for loss in losses]
    assert record["settings"]["shape"]["hidden_size"] == 32


def test_the_same_settings_give_the_same_files_and_are_trained_once_per_cache(tmp_path):
    calls = []
    folders = [
        build_base(
            SHORT,
            copy_problem,
            tmp_path / name,
            fingerprint="copy",
            progress=lambda step, steps, loss: calls.append(step),
        )
        for name in ("one", "one", "two")
    ]
    one, again, two = folders
    assert one == again
    assert calls == [1, 2] * 2
    assert sorted(file.name for file in one.iterdir()) == sorted(file.name for file in two.iterdir())
    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTINGS, shape=replace(SHAPE, tied_embeddings=False)),
        replace(SETTINGS, vocab_size=301),
        replace(SETTINGS, steps=31),
        replace(SETTINGS, batch_size=21),
        replace(SETTINGS, learning_rate=2e-2),
        replace(SETTINGS, seed=1),
        replace(SETTINGS, corpus_problems=21),
    ],
)
def test_every_setting_and_the_fingerprint_change_the_key(other):
    keys = {cache_key(SETTINGS, "a"), cache_key(SETTINGS, "b"), cache_key(other, "a"), cache_key(other, "b")}
    assert len(keys) == 4
    assert cache_key(replace(other), "a") in keys


def test_an_interrupted_warm_up_leaves_nothing_and_the_next_one_succeeds(tmp_path):
    def interrupt(step, steps, loss):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_base(SHORT, copy_problem, tmp_path, fingerprint="copy", progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    folder = build_base(SHORT, copy_problem, tmp_path, fingerprint="copy")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_base_that_another_process_finishes_meanwhile_is_used(tmp_path):
    def outrun(step, steps, loss):
        if step == steps:
            build_base(SHORT, copy_problem, tmp_path / "theirs", fingerprint="copy").rename(
                tmp_path / f"base-{cache_key(SHORT, 'copy')}"
            )

    folder = build_base(SHORT, copy_problem, tmp_path, fingerprint="copy", progress=outrun)
    assert (folder / RECORD).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name, "theirs"]


def test_problems_that_cannot_be_shown_are_skipped(tmp_path):
    def mixed(index):
        problem = copy_problem(index // 3)
        too_long = Solution(steps="7" * SHAPE.context, answer="7")
        return replace(problem, index=index, solution=(problem.solution, None, too_long)[index % 3])

    settings = replace(SHORT, corpus_problems=60)
    plain, skipping = (
        build_base(settings, source, tmp_path, fingerprint=name)
        for name, source in (("plain", copy_problem), ("mixed", mixed))
    )
    losses = [json.loads((folder / RECORD).read_text())["losses"] for folder in (plain, skipping)]
    assert losses[0] == losses[1]


def test_a_mixture_without_usable_solutions_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no solution that fits into 40 tokens"):
        build_base(
            SHORT, lambda index: replace(copy_problem(index), solution=None), tmp_path, fingerprint="none"
        )


@pytest.mark.parametrize(
    ("change", "message"), [({"shape": replace(SHAPE, architecture="qwen2")}, "llama or qwen3")]
)
def test_settings_that_cannot_work_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        replace(SETTINGS, **change)  # type: ignore[arg-type]


def test_the_loss_is_the_sum_over_response_tokens_whatever_the_padding():
    model = build_model(SHAPE, 50, seed=0)
    batch = [Example(prompt=(1, 2, 3), response=(4, 5)), Example(prompt=(6,), response=(7, 8, 9, 10, 11, 12))]
    expected = 0.0
    for example in batch:
        ids = torch.tensor([example.prompt + example.response])
        logps = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
        expected -= logps[len(example.prompt) - 1 :].sum().item()
    assert response_loss(model, batch).item() == pytest.approx(expected, rel=1e-5)
    assert response_loss(model, batch[::-1]).item() == pytest.approx(expected, rel=1e-5)


@given(steps=st.integers(1, 500))
def test_the_learning_rate_rises_to_its_peak_and_falls_without_reaching_zero(steps):
    factors = [rate_factor(step, steps) for step in range(steps)]
    peak = factors.index(max(factors))
    assert max(factors) == 1.0
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert min(factors) > 0
