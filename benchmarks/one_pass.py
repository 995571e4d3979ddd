"""What joining passes of the learner would gain: the reference's with the policy's, clipping with the optimizer's.

Policy and reference have one shape, so each product of a layer can be made for both at once, as a batch of two; so
can attention. A layer is written out here both ways, with the shape of `nano`, and its forward pass timed in CPU
time. That bounds the gain from above: a real policy also keeps what its gradient needs. The norm must be known before
any weight moves, so only the scaling of a clipped gradient could join the update, which torch's fused AdamW does when
it is given a scale.

    python benchmarks/one_pass.py --rounds 300
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import markdown
from prorl.config.schema import ShapeConfig

LENGTH = 64  # of a row
Product = Callable[[Tensor, Tensor], Tensor]
Layer = dict[str, Tensor]


def make_layers(shape: ShapeConfig) -> list[Layer]:
    """Random weights by name, laid out as `nn.Linear` does."""
    width, inner = shape.hidden_size, shape.intermediate_size
    values = (shape.heads + 2 * shape.kv_heads) * (width // shape.heads)
    sizes = {"qkv": (values, width), "out": (width, width), "up": (2 * inner, width), "down": (width, inner)}
    return [
        {name: 0.05 * torch.randn(size) for name, size in sizes.items()}
        | {"norm": torch.ones(width), "second_norm": torch.ones(width)}
        for _ in range(shape.layers)
    ]


def both(policy: Sequence[Layer], reference: Sequence[Layer]) -> list[Layer]:
    """The weights of two models as batches of two: products transposed, norms to be spread over tokens."""
    pairs = [
        {name: torch.stack((one[name], other[name])) for name in one}
        for one, other in zip(policy, reference, strict=True)
    ]
    return [
        {name: w.transpose(1, 2).contiguous() if w.dim() == 3 else w[:, None] for name, w in layer.items()}
        for layer in pairs
    ]


def forward(layers: Sequence[Layer], x: Tensor, shape: ShapeConfig, product: Product) -> Tensor:
    """Hidden states after all layers; `x`: tokens × channels, or 2 × tokens × channels."""
    head = shape.hidden_size // shape.heads
    angles = torch.outer(torch.arange(LENGTH), 1e4 ** -torch.linspace(0, 1, head // 2)).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()

    def rotated(values: Tensor) -> Tensor:
        one, other = values.chunk(2, -1)
        return values * cos + torch.cat((-other, one), -1) * sin

    def normed(values: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(values, values.shape[-1:]) * weight

    for layer in layers:
        qkv = product(normed(x, layer["norm"]), layer["qkv"])
        heads = qkv.view(-1, LENGTH, shape.heads + 2 * shape.kv_heads, head).transpose(1, 2)
        q, k, v = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + product(mixed.transpose(1, 2).reshape(x.shape), layer["out"])
        gate, up = product(normed(x, layer["second_norm"]), layer["up"]).chunk(2, -1)
        x = x + product(F.silu(gate) * up, layer["down"])
    return x


def in_turn(rounds: int, *sides: Callable[[], object]) -> Iterator[list[float]]:
    """CPU seconds of each side, a round at a time."""
    for _ in range(rounds):
        spent = []
        for side in sides:
            begin = time.thread_time()
            side()
            spent.append(time.thread_time() - begin)
        yield spent


def passes(shape: ShapeConfig, rows: int, rounds: int) -> list[list[float]]:
    """Seconds of two forward passes, and of one for both models; ValueError if they do not agree."""
    policy, reference = make_layers(shape), make_layers(shape)
    x, joined = torch.randn(rows * LENGTH, shape.hidden_size), both(policy, reference)
    run = partial(forward, shape=shape)

    def apart() -> list[Tensor]:
        return [run(layers, x, product=F.linear) for layers in (policy, reference)]

    def at_once() -> Tensor:
        return run(joined, x.expand(2, -1, -1), product=torch.bmm)

    with torch.no_grad():
        torch.testing.assert_close(at_once(), torch.stack(apart()))
        return list(in_turn(rounds, apart, at_once))


def update(shape: ShapeConfig, rounds: int) -> list[list[float]]:
    """Seconds of scaling the gradients of a model of this shape, and of the whole optimizer step after it."""
    weights = [nn.Parameter(weight) for layer in make_layers(shape) for weight in layer.values()]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)

    def scale() -> None:
        nn.utils.clip_grads_with_norm_(weights, 1.0, torch.tensor(1.0))

    return list(in_turn(rounds, scale, optimizer.step))


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300, help="turns of each side (default 300)")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape, table = ShapeConfig(), []
    measured = {
        f"reference and policy, {rows * LENGTH} tokens: two passes, one": passes(
            shape, rows, arguments.rounds
        )
        for rows in (4, 8, 16)
    }
    measured["update: scaling of the gradient, AdamW"] = update(shape, arguments.rounds)
    for name, turns in measured.items():
        one, other = (1e3 * statistics.median(turn[side] for turn in turns) for side in (0, 1))
        ratio = statistics.median(turn[1] / turn[0] for turn in turns)
        table.append((name, f"{one:.2f}", f"{other:.2f}", f"{ratio:.2f}"))
    print(markdown(("", "first, ms", "second, ms", "median ratio"), table))


if __name__ == "__main__":
    main(sys.argv[1:])
