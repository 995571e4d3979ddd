"""Text to tokens and back, by the model's own tokenizer and chat template.

Invariant: training, validation and warm-up see a prompt through this one place, so they agree on every token.
Imports no torch: the tokenizer comes from the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prorl.envs.extract import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TAGS = (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)


class ChatRenderer:
    """Implements `ports.Renderer` for any transformers tokenizer, with or without a chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder.items()
        special = {*tokenizer.all_special_ids, *(id_ for id_, token in added if token.special)}
        self._dropped = special - {id_ for id_, token in added if token.content in _TAGS}
        opened: str = tokenizer.decode(self.encode(""), skip_special_tokens=False)
        self._opening = THINK_OPEN if opened.rstrip().endswith(THINK_OPEN) else ""

    def encode(self, prompt: str) -> tuple[int, ...]:
        """A user prompt as the token ids that open the assistant's turn; a prompt line where there is no template."""
        if not self._tokenizer.chat_template:
            return tuple(self._tokenizer.encode(prompt + "\n"))
        return tuple(
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """The assistant's turn as text: special tokens are dropped, thinking and answer tags stay.

        Where the template itself opens the thinking (DeepSeek-R1), the text starts with that tag, so that a
        response which never closes it is read as unfinished thinking.
        """
        kept = [token for token in tokens if token not in self._dropped]
        text: str = self._tokenizer.decode(
            kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return self._opening + text
