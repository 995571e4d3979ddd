"""Linear layers by oneDNN, which is a part of torch: on AMD's AVX-512 all, elsewhere large ones whose weights stay.

Torch itself multiplies float32 matrices by MKL, which leaves half of the vector width of AMD's AVX-512 idle.
Invariants: the numbers of `torch.nn.functional.linear` and its gradients, up to float rounding; a row has the same
bits whatever the rows beside it. For that oneDNN has to be that of torch 2.13 or newer, and MKL on Intel's processors
is told so, before its first product in a process.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows are filled up to a multiple of so many, as oneDNN makes code for every shape that it meets, and few rows to one
# of FEWEST_ROWS: from so many on a row has the same bits whatever the rows beside it by MKL, too.
ROWS, FEW_ROWS, FEWEST_ROWS = 16, 64, 4
SINCE = (2, 13)
LARGE = 2**18  # weights, with which oneDNN gains without AVX-512; a call takes 7 to 11 µs more than by MKL
SMALL = 2**20  # multiplications, which MKL does in less time than oneDNN's calls take more


@cache
def processor() -> str:
    """What rounding depends on, as `AVX2` or `Intel AVX512`."""
    vendor = ""
    with suppress(OSError), open("/proc/cpuinfo") as told:
        vendor = "Intel " if "GenuineIntel" in told.read(256) else ""
    return vendor + torch.backends.cpu.get_cpu_capability()


if processor().startswith("Intel"):
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def linear(x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """As `torch.nn.functional.linear`, shape NM."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or not _by_onednn(x_NK):
        return F.linear(x_NK, weight_MK, bias_M)
    if not torch.is_grad_enabled():
        return _product(padded(x_NK), weight_MK, bias_M)[: len(x_NK)]
    result: Tensor = _Linear.apply(x_NK, weight_MK, bias_M)  # type: ignore[no-untyped-call]
    return result


def prepared(weight_MK: Tensor, bias_M: Tensor | None) -> Callable[[Tensor], Tensor]:
    """As `linear` by these weights, float32, without gradients and for rows that are `padded`, in less time.

    The weights may be copied: oneDNN arranges them anew in every call of `linear`, and here once.
    """
    multiply = _onednn() if weight_MK.is_cpu and (_wide() or weight_MK.numel() >= LARGE) else None
    by_mkl = partial(F.linear, weight=weight_MK, bias=bias_M)
    if multiply is None:
        return by_mkl
    arranged = torch.ops.mkldnn._reorder_linear_weight(weight_MK, None)
    few = SMALL // weight_MK.numel() if _alike(*weight_MK.shape, bias_M is not None) else 0
    return lambda x_NK: by_mkl(x_NK) if len(x_NK) <= few else multiply(x_NK, arranged, bias_M, "none", [], "")


def filled(rows: int) -> int:
    """How many rows are multiplied where there are so many."""
    multiple = FEWEST_ROWS if rows <= FEW_ROWS else ROWS
    return -(-rows // multiple) * multiple


def padded(x: Tensor) -> Tensor:
    """Zeros after the rows of `x`, to as many as are multiplied."""
    missing = filled(len(x)) - len(x)
    return F.pad(x, (*[0, 0] * (x.dim() - 1), 0, missing)) if missing else x


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = padded(x)
        ctx.save_for_backward(rows, weight)
        return _product(rows, weight, bias)[: len(x)]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        rows = padded(grad)
        return (
            _product(rows, weight.t())[: len(grad)] if for_x else None,
            _product(rows.t(), x.t()) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )


def _by_onednn(x_NK: Tensor) -> bool:
    return x_NK.dtype == torch.float32 and x_NK.is_cpu and len(x_NK) > 0 and _wide() and _onednn()


def _product(x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None = None) -> Tensor:
    result: Tensor = _onednn()(x_NK, weight_MK, bias_M, "none", [], "")
    return result


@cache
def _alike(outer: int, inner: int, biased: bool) -> bool:
    """Whether MKL and oneDNN give the same bits for `SMALL` products: both add up one by one, if these are few."""
    random = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    weight, bias = random(outer, inner), random(outer) if biased else None
    few = (random(rows, inner) for rows in {filled(rows + 1) for rows in range(SMALL // weight.numel())})
    return all(torch.equal(F.linear(x, weight, bias), _product(x, weight, bias)) for x in few)


@cache
def _onednn() -> Any:
    new = tuple(map(int, torch.__version__.split(".")[:2])) >= SINCE
    known = new and torch.backends.mkldnn.is_available()
    return torch.ops.mkldnn._linear_pointwise.default if known else None


@cache
def _wide() -> bool:
    """Whether oneDNN computes with wider vectors than MKL."""
    return processor() == "AVX512"
