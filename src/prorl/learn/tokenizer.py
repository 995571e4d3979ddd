"""Makes the tokenizer of a tiny base: byte-level, whole frequent words, everything else one byte per token.

A BPE learned at this scale cuts the random strings of a puzzle at whatever pairs the prose around them made frequent
("reab" → "re" "a" "b"), so the same letter hides in many tokens and a small model cannot learn to reverse or sort.
Here a word is either common enough to be one token (`ignore_merges`, no merge table) or spelled out.
Invariants: the same texts give the same files, and decoding gives back every text exactly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from prorl.envs.extract import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

PAD, USER, ASSISTANT, END = "<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"
SPECIAL = (PAD, USER, ASSISTANT, END)
TAGS = (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)
SMALLEST = 256 + len(SPECIAL) + len(TAGS)  # every byte, and the tokens that are always there

# Qwen's split: a word keeps its leading space, digits stand alone, punctuation runs stay together.
_SPLIT = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_ADDED = re.compile("|".join(map(re.escape, SPECIAL + TAGS)))
_MIN_SHARE = 1 / 500  # of the texts: rarer words are content, not phrasing, and are spelled out

# Two tokens of overhead per prompt: who speaks is the opening token itself.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    f"{{%- if message['role'] == 'assistant' -%}}{{{{- '{ASSISTANT}' + message['content'] + '{END}' -}}}}"
    f"{{%- else -%}}{{{{- '{USER}' + message['content'] -}}}}{{%- endif -%}}"
    "{%- endfor -%}"
    f"{{%- if add_generation_prompt -%}}{{{{- '{ASSISTANT}' -}}}}{{%- endif -%}}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocab_size` tokens whose words come from `texts`; fewer where words run out.

    A word earns its place by the tokens it saves: occurrences times (bytes - 1); ties break by the word itself.

    Raises:
        ValueError: `vocab_size` leaves no room for the bytes and the added tokens.
    """
    if vocab_size < SMALLEST:
        raise ValueError(f"vocab_size is {vocab_size}; bytes and added tokens alone need {SMALLEST}")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = _frequent_words(texts)[: vocab_size - SMALLEST]
    vocab = {token: id_ for id_, token in enumerate([*alphabet, *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
    )


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _frequent_words(texts: Iterable[str]) -> list[str]:
    """Byte-level words of two bytes or more, most tokens saved first, without those that few texts contain."""
    cut = _pre_tokenizer()
    occurrences: Counter[str] = Counter()
    texts_with: Counter[str] = Counter()
    total = 0
    for text in texts:
        words = [
            word for part in _ADDED.split(text) for word, _ in cut.pre_tokenize_str(part) if len(word) > 1
        ]
        occurrences.update(words)
        texts_with.update(set(words))
        total += 1
    common = [word for word, count in texts_with.items() if count >= max(2, total * _MIN_SHARE)]
    return sorted(common, key=lambda word: (-occurrences[word] * (len(word) - 1), word))
