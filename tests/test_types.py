"""What plain data takes, in memory and on its way to another process."""

import pickle
import struct
import tracemalloc

import pytest

from prorl.cluster.capacity import LEARNED
from prorl.types import Completion, log_probs, token_ids

TOKENS = 10_000
IDS = [151_643 - 7 * at for at in range(TOKENS)]
# As an engine gives them.
LOGPS = [struct.unpack("f", struct.pack("f", -at / 997))[0] for at in range(TOKENS)]


def completion():
    return Completion(
        draw=0, sample=1, tokens=token_ids(IDS), logps=log_probs(LOGPS), finish="stop", policy_version=2
    )


def test_a_token_with_its_log_prob_takes_eight_bytes():
    tracemalloc.start()
    try:
        held = completion()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert LEARNED <= size / TOKENS < 1.05 * LEARNED
    assert LEARNED <= len(pickle.dumps(held)) / TOKENS < 1.05 * LEARNED


def test_what_engines_compute_in_float32_is_kept_to_the_bit():
    assert list(completion().logps) == LOGPS
    assert pickle.loads(pickle.dumps(completion())) == completion()


def test_a_token_beyond_32_bits_is_refused():
    with pytest.raises(OverflowError):
        token_ids([2**31])
