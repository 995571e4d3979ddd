"""The learner's log-probs against the head and cross-entropy that torch has fused (`linear_cross_entropy`, 2.13).

Neither holds all logits at once: both compute them in the same chunks, and a chunk again for its gradient. Ours gives
entropy on the way, torch's only an estimate. On a CPU, time is CPU time. The numbers of both are compared before
anything is timed.

    OMP_NUM_THREADS=1 python benchmarks/fused_head.py --rounds 5
    python benchmarks/fused_head.py --device cuda --tokens 16384 --width 1536 --vocab 151936 --dtype bfloat16
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import markdown
from prorl.learn.loss import Scoring, token_logprobs

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}  # of the largest number compared
Logprobs = Callable[[Tensor], Tensor]


def logprobs(hidden_ND: Tensor, head: nn.Linear, targets_N: Tensor, scoring: Scoring) -> Tensor:
    """As the learner computes them, entropy beside."""
    return token_logprobs(hidden_ND, head, targets_N, scoring)[0]


def passes(
    compute: Logprobs, hidden_ND: Tensor, head: nn.Linear, weights_N: Tensor
) -> tuple[list[Tensor], float]:
    """Log-probs and the gradients to hidden states and head, and the seconds that both passes took."""
    hidden_ND = hidden_ND.clone().requires_grad_()
    begin = now(hidden_ND.device)
    logps_N = compute(hidden_ND)
    gradients = torch.autograd.grad(logps_N, [hidden_ND, head.weight], weights_N)
    return [logps_N.detach(), *gradients], now(hidden_ND.device) - begin


def now(device: torch.device) -> float:
    """CPU time, or the clock once a GPU has done what it was given."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, size in {"tokens": 1024, "width": 256, "vocab": 50_000, "elements": 2**24, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float32")
    arguments = parser.parse_args(argv)
    if not hasattr(F, "linear_cross_entropy"):
        sys.exit(f"torch {torch.__version__} has no linear_cross_entropy: install torch 2.13")
    torch.manual_seed(0)
    kind = {"device": arguments.device, "dtype": getattr(torch, arguments.dtype)}
    hidden_ND = torch.randn(arguments.tokens, arguments.width, **kind)
    head = nn.Linear(arguments.width, arguments.vocab, bias=False, **kind)
    targets_N = torch.randint(arguments.vocab, (arguments.tokens,), device=arguments.device)
    weights_N = torch.randn(arguments.tokens, device=arguments.device)
    plain = Scoring(temperature=1.0, logits_elements=arguments.elements, dtype=kind["dtype"])
    ways: dict[str, Logprobs] = {
        name: partial(logprobs, head=head, targets_N=targets_N, scoring=scoring)
        for name, scoring in {"ours": plain, "torch's": replace(plain, fused_head=True)}.items()
    }
    numbers = [passes(compute, hidden_ND, head, weights_N)[0] for compute in ways.values()]
    for mine, its in zip(*numbers, strict=True):
        error = ((mine.float() - its.float()).abs().max() / mine.float().abs().max()).item()
        if not error <= TOLERANCE[arguments.dtype]:
            sys.exit(f"the two ways differ by {error:.2g} of the largest number")
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, compute in ways.items():
            taken[name].append(passes(compute, hidden_ND, head, weights_N)[1])
    ratios = [its / mine for mine, its in zip(taken["ours"], taken["torch's"], strict=True)]
    rows = [[name, f"{statistics.median(seconds):.3f}"] for name, seconds in taken.items()]
    print(markdown(("forward and backward", "seconds"), rows))
    print(f"torch's / ours: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main(sys.argv[1:])
