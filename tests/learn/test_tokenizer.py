"""The tokenizer of a tiny base: exact, reproducible, and coarse only where words are common."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from prorl.learn.base_model import (
    ASSISTANT,
    END,
    PAD,
    SMALLEST,
    SPECIAL,
    TAGS,
    USER,
    ModelShape,
    build_model,
    train_tokenizer,
)
from prorl.learn.model import ModelError

TEXTS = [f"Reverse the string: q{letter}x{number}." for number in range(30) for letter in "abcdefgh"]
VOCAB = 320


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, VOCAB)


@given(text=st.text().filter(lambda text: not any(token in text for token in SPECIAL)))
def test_decoding_gives_back_every_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_common_words_are_one_token_and_content_is_spelled_out(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("Reverse the string: qzstr417"))
    assert tokens == ["Reverse", "Ġthe", "Ġstring", ":", "Ġ", *"qzstr417"]


@given(numbers=st.lists(st.integers(0, 10**9), min_size=1))
def test_digits_stand_alone(tokenizer: PreTrainedTokenizerFast, numbers: list[int]) -> None:
    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode(" ".join(map(str, numbers))))
    assert [token for token in tokens if token[-1].isdigit()] == list("".join(map(str, numbers)))


def test_two_trainings_write_identical_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train_tokenizer(iter(TEXTS), VOCAB).save_pretrained(tmp_path / name)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_tags_are_single_tokens_that_survive_and_special_tokens_do_not(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    for tag in TAGS:
        assert len(tokenizer.encode(tag)) == 1
    text = "".join(TAGS)
    assert tokenizer.decode(tokenizer.encode(USER + text + END), skip_special_tokens=True) == text
    assert (tokenizer.eos_token, tokenizer.pad_token) == (END, PAD)


def test_tags_and_special_tokens_of_the_corpus_teach_no_words() -> None:
    plain = train_tokenizer(["one two", "two one"] * 5, VOCAB)
    tagged = train_tokenizer(["<think>one two</think>", "two one<|im_end|>"] * 5, VOCAB)
    assert plain.get_vocab() == tagged.get_vocab()


def test_the_chat_template_marks_each_turn_once(tokenizer: PreTrainedTokenizerFast) -> None:
    turns = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3?"},
    ]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert text == f"{USER}1?{ASSISTANT}2{END}{USER}3?{ASSISTANT}"
    assert tokenizer.apply_chat_template(turns[:1], tokenize=False) == f"{USER}1?"


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_checkpoint_reloads_the_same_tokenizer(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, architecture: str
) -> None:
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
def test_the_vocabulary_never_exceeds_what_was_asked(vocab_size: int) -> None:
    assert SMALLEST <= len(train_tokenizer(TEXTS, vocab_size)) <= vocab_size


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(ModelError, match=f"need {SMALLEST}"):
        train_tokenizer(TEXTS, SMALLEST - 1)
