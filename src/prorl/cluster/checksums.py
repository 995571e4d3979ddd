"""What shows that weights arrived as they were sent: of arrays in host memory, and of tensors wherever they are."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]

PIECE = 2**22  # words that are summed at a time, which takes 96 MiB beside the tensor


def crc(arrays: Mapping[str, Array]) -> int:
    """CRC-32 over names, shapes and contents; arrays under two names count once."""
    value, seen = 0, set()
    for name, array in arrays.items():
        value = zlib.crc32(f"{name} {array.shape}".encode(), value)
        place = array.__array_interface__["data"]
        if place not in seen:
            seen.add(place)
            value = zlib.crc32(np.ascontiguousarray(array).data, value)
    return value


def word_sum(tensor: Tensor) -> Tensor:
    """The sum of a tensor's 16-bit words, each times its place, modulo 2^64: an int64 scalar, beside the tensor.

    Any change of one word changes it, as does any exchange of two that differ. It is exact, so the order in which a
    device adds up does not matter.
    """
    words = tensor.detach().contiguous().view(-1).view(torch.int16)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, len(words), PIECE):
        piece = words[start : start + PIECE].long()
        total += (piece * torch.arange(start + 1, start + 1 + len(piece), device=words.device)).sum()
    return total


def differing(sent: Mapping[str, int], received: Sequence[Mapping[str, int]], receivers: int) -> list[str]:
    """Names of weights that not each of so many receivers has as they were sent, by their sums."""
    if len(received) != receivers:
        return list(sent)
    return [name for name, total in sent.items() if any(sums.get(name) != total for sums in received)]
