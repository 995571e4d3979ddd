"""ChatRenderer: what a prompt becomes, what comes back, and that it needs no torch."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from prorl.envs.extract import extract_answer, respond
from prorl.learn.base_model import END, USER, train_tokenizer
from prorl.rollout.pipeline import ChatRenderer


def byte_tokenizer(*, special_tags: bool, template: str | None) -> PreTrainedTokenizerFast:
    """A stranger's tokenizer: bytes, one end token, and think tags that may be marked special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={byte: id_ for id_, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    tags = [AddedToken(tag, special=special_tags, normalized=False) for tag in ("<think>", "</think>")]
    (backend.add_special_tokens if special_tags else backend.add_tokens)(tags)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", chat_template=template)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["What is 1 + 2?"] * 4, 512)


def test_a_prompt_opens_the_assistants_turn_with_two_tokens_of_overhead(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    ids = ChatRenderer(tokenizer).encode("What is 1 + 2?")
    assert len(ids) == len(tokenizer.encode("What is 1 + 2?")) + 2
    assert tokenizer.decode(ids) == "<|im_start|>What is 1 + 2?<|im_sep|>"


@pytest.mark.parametrize("special_tags", [False, True])
def test_decode_drops_special_tokens_but_keeps_the_tags(special_tags: bool) -> None:
    tokenizer = byte_tokenizer(special_tags=special_tags, template=None)
    tokens = tokenizer.encode("<think>1+1</think>2<eos>")
    assert ChatRenderer(tokenizer).decode(tokens) == "<think>1+1</think>2"


def test_decode_leaves_the_text_as_it_is(tokenizer: PreTrainedTokenizerFast) -> None:
    text = respond("1 , 2 .  3 n't", " -4 ")
    tokens = tokenizer.encode(text + END + USER)
    assert ChatRenderer(tokenizer).decode(tokens) == text


def test_without_a_chat_template_the_prompt_is_a_line() -> None:
    tokenizer = byte_tokenizer(special_tags=False, template=None)
    assert tokenizer.decode(ChatRenderer(tokenizer).encode("2+2")) == "2+2\n"


TURN = "{{ messages[0]['content'] }}\n"


@pytest.mark.parametrize(
    ("opening", "expected"),
    [("<think>\n", None), ("<think>\n\n</think>\n", "4"), ("", "4")],
    ids=["open", "closed", "none"],
)
def test_thinking_that_the_template_opens_counts_as_thinking(opening: str, expected: str | None) -> None:
    template = TURN + "{% if add_generation_prompt %}" + opening + "{% endif %}"
    tokenizer = byte_tokenizer(special_tags=False, template=template)
    text = ChatRenderer(tokenizer).decode(tokenizer.encode("perhaps <answer>4</answer>"))
    assert extract_answer(text) == expected


@pytest.mark.parametrize(
    "make",
    [lambda: byte_tokenizer(special_tags=False, template=None), lambda: train_tokenizer(["a b c"], 512)],
    ids=["plain", "own"],
)
def test_an_empty_prompt_is_still_a_prompt(make: Callable[[], PreTrainedTokenizerBase]) -> None:
    assert len(ChatRenderer(make()).encode("")) >= 1


def test_rendering_is_importable_without_torch() -> None:
    code = "import sys, prorl.rollout.pipeline; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
