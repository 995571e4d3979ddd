"""Instruction following: checks under the ids and arguments of IFEval and its successors, so that real data loads.

Everything is deterministic and local: regular expressions instead of tokenizer downloads, word lists instead of a
language model. Nothing here grants a point by default: what is not known, or not well formed, is an error.
"""

from prorl.envs.verifiers.instructions.arguments import UnknownInstructionError
from prorl.envs.verifiers.instructions.grade import (
    KNOWN_IDS,
    Instruction,
    check,
    read,
    score,
    validate,
    verify,
)

__all__ = [
    "KNOWN_IDS",
    "Instruction",
    "UnknownInstructionError",
    "check",
    "read",
    "score",
    "validate",
    "verify",
]
