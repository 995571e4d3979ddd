"""Batch → rows → forward passes: which tokens share a row, which rank computes it, and the tensors of a pass.

A row is one prompt followed by one or several of its actions. With several, the prompt is computed once for all of
them: a block mask lets each action see the prompt and itself only, and its positions continue from the prompt, so
every log-prob equals the one computed in a row of its own. The last token of an action predicts nothing and is not
fed. Invariants: an action is never cut; every action token is predicted exactly once; all ranks make the same number
of passes; counts are over all ranks, so a denominator needs no communication.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from prorl.types import Action, Batch, PromptActions

SHARING_ARCHITECTURES = frozenset({"qwen2", "qwen3", "llama"})
SHARING_ATTENTION = "sdpa"  # the implementation that takes a boolean mask; eager attention would add it
SHORTEST_SHARE = 0.8  # of the longest row of a forward pass, which bounds the padding computed in vain


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence to compute: a prompt and the actions that continue it, none empty."""

    prompt: tuple[int, ...]
    actions: tuple[Action, ...]

    @property
    def positions(self) -> int:
        """Token positions fed to the model."""
        return len(self.prompt) + sum(len(action.tokens) - 1 for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Tensors of one forward pass. R rows, S positions; B actions, T tokens of the longest; N action tokens.

    The N entries are the true entries of `mask_BT` in row-major order.
    """

    tokens_RS: Tensor
    positions_RS: Tensor | None  # None: 0, 1, 2, … in every row
    segments_RS: Tensor | None  # 0 prompt, k action k, -1 padding; None: one action per row, causal is enough
    sources_N: Tensor  # index into the flattened (R·S) positions: the one that predicts the token
    targets_N: Tensor
    mask_BT: Tensor  # bool
    engine_logps_BT: Tensor
    advantages_BT: Tensor


def attention_cost(model: PreTrainedModel) -> float | None:
    """Cost of one query-key pair, in units of one token's share of the linear layers; None forbids sharing.

    None for architectures that are not known to honour a full mask with position ids, and for sliding windows.
    """
    config = model.config
    full = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    known = config.model_type in SHARING_ARCHITECTURES and config._attn_implementation == SHARING_ATTENTION
    if not (known and full):
        return None
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pair_flops = 4 * config.num_hidden_layers * config.num_attention_heads * head_dim
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    vocabulary = {weight for end in ends for weight in end.parameters()}
    inner = sum(weight.numel() for weight in model.parameters() if weight not in vocabulary)
    token_flops = 2 * inner
    return float(pair_flops / token_flops)


def plan_rows(groups: Sequence[PromptActions], *, budget: int, pair_cost: float | None) -> list[Row]:
    """Rows for all actions, in order: as many actions of a group per row as is cheapest within `budget` positions.

    `pair_cost` as in `attention_cost`; None gives every action a row of its own. A prompt has at least one token,
    which predicts the first of every action.
    """
    rows: list[Row] = []
    for group in groups:
        actions = tuple(action for action in group.actions if action.tokens)
        per_row = 1 if pair_cost is None else _cheapest_share(group.prompt, actions, budget, pair_cost)
        rows += [
            Row(prompt=group.prompt, actions=actions[start : start + per_row])
            for start in range(0, len(actions), per_row)
        ]
    return rows


def gather_rows(rows: Sequence[Row], *, budget: int) -> list[list[Row]]:
    """Rows sorted by length and cut into micro-batches of at most `budget` positions, padding included.

    A row longer than the budget stands alone, and one much shorter than those before it starts anew. The sort is
    stable, so the result depends on the input order only.
    """
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.positions, reverse=True):
        longest = batches[-1][0].positions if batches else 0
        fits = batches and (len(batches[-1]) + 1) * longest <= budget
        if fits and row.positions >= SHORTEST_SHARE * longest:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def deal(rows: Sequence[Row], ranks: int) -> list[list[Row]]:
    """Rows of each rank, maybe none: the longest first, always to the rank that has least positions (Graham 1969)."""
    dealt: list[list[Row]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for row in sorted(rows, key=lambda row: row.positions, reverse=True):
        least = loads.index(min(loads))
        dealt[least].append(row)
        loads[least] += row.positions
    return dealt


def deal_rounds(rows: Sequence[Row], ranks: int, *, budget: int) -> list[list[list[Row]]]:
    """Micro-batches of each rank: those of all rows, the largest first, a round of them after the other.

    Better than `deal` and then `gather_rows` where there are many, as those of a round are of about the same size.
    """
    cut = sorted(gather_rows(rows, budget=budget), key=_computed, reverse=True)
    return [cut[rank::ranks] for rank in range(ranks)]


def lockstep(plans: Sequence[Sequence[Sequence[Row]]]) -> int:
    """Positions that ranks wait for which begin every pass together, as FSDP's do: the largest of each pass."""
    return sum(max(map(_computed, passes)) for passes in zip_longest(*plans, fillvalue=()))


def _computed(rows: Sequence[Row]) -> int:
    """Positions of a micro-batch, padding included; its first row is the longest."""
    return len(rows) * rows[0].positions if rows else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank computes of a mini-batch, and counts over all ranks."""

    passes: tuple[tuple[Row, ...], ...]  # rows of each forward pass, none where other ranks still compute
    action_tokens: int
    positions: int  # computed, padding included


def deal_batch(
    batch: Batch, *, updates: int, ranks: int, budget: int, pair_cost: float | None
) -> list[list[Share]]:
    """For each rank its share of every mini-batch; `budget` and `pair_cost` as in `plan_rows`.

    A mini-batch per update: contiguous groups whose counts differ by at most one, or fewer mini-batches where
    there are fewer groups with action tokens.
    """
    groups = [group for group in batch if group.action_tokens]
    parts = min(updates, len(groups))
    bounds = [part * len(groups) // parts for part in range(parts + 1)] if parts else []
    shares: list[list[Share]] = [[] for _ in range(ranks)]
    for start, end in pairwise(bounds):
        rows = plan_rows(groups[start:end], budget=budget, pair_cost=pair_cost)
        by_rank = [gather_rows(dealt, budget=budget) for dealt in deal(rows, ranks)]
        plans = min(by_rank, deal_rounds(rows, ranks, budget=budget), key=lockstep)
        tokens = sum(group.action_tokens for group in groups[start:end])
        positions = sum(_computed(part) for plan in plans for part in plan)
        for share, plan in zip(shares, plans, strict=True):
            passes = (*map(tuple, plan), *[()] * (max(map(len, plans)) - len(plan)))
            share.append(Share(passes=passes, action_tokens=tokens, positions=positions))
    return shares


def micro_batch(rows: Sequence[Row], *, pad_id: int, device: torch.device) -> MicroBatch:
    """Tensors for `rows` on `device`, right-padded. A row without actions is computed and predicts nothing."""
    width = max(row.positions for row in rows)
    actions = [action for row in rows for action in row.actions]
    lengths_B = torch.tensor([len(action.tokens) for action in actions], dtype=torch.long)
    mask_BT = torch.arange(max((len(action.tokens) for action in actions), default=0)) < lengths_B[:, None]
    layouts = [_layout(row) for row in rows] if any(len(row.actions) > 1 for row in rows) else None
    advantages_B = torch.tensor([action.advantage for action in actions], dtype=torch.float32)

    def padded(values: list[Tensor], padding: int) -> Tensor:
        return pad_sequence(values, batch_first=True, padding_value=padding).to(device)

    def joined(parts: Iterable[Tensor], dtype: torch.dtype) -> Tensor:
        return torch.cat([torch.empty(0, dtype=dtype), *parts])

    logps_N = joined((torch.frombuffer(a.engine_logps, dtype=torch.float32) for a in actions), torch.float32)
    sources = (part for index, row in enumerate(rows) for part in _sources(row, index * width))
    fed = [[torch.tensor(row.prompt), *(_ids(action)[:-1] for action in row.actions)] for row in rows]
    return MicroBatch(
        tokens_RS=padded([torch.cat(parts) for parts in fed], pad_id),
        positions_RS=padded([positions_S for positions_S, _ in layouts], 0) if layouts else None,
        segments_RS=padded([segments_S for _, segments_S in layouts], -1) if layouts else None,
        sources_N=joined(sources, torch.long).to(device),
        targets_N=joined(map(_ids, actions), torch.long).to(device),
        mask_BT=mask_BT.to(device),
        engine_logps_BT=torch.zeros(mask_BT.shape).masked_scatter_(mask_BT, logps_N).to(device),
        advantages_BT=torch.where(mask_BT, advantages_B[:, None], 0.0).to(device),
    )


def prefix_mask(segments_RS: Tensor) -> Tensor:
    """Boolean mask (R, 1, S, S), true where the query attends: earlier or itself, in the prompt or its own segment.

    Padding attends to padding, so that no query is left without a key.
    """
    width = segments_RS.shape[1]
    causal_SS = torch.ones(width, width, dtype=torch.bool, device=segments_RS.device).tril()
    keys, queries = segments_RS[:, None, :], segments_RS[:, :, None]
    return (causal_SS & ((keys == queries) | (keys == 0)))[:, None]


def _cheapest_share(
    prompt: tuple[int, ...], actions: tuple[Action, ...], budget: int, pair_cost: float
) -> int:
    """Actions per row of least estimated cost; a shared row pays all S² pairs, a causal row half of them."""
    fed = [len(action.tokens) - 1 for action in actions]

    def cost(per_row: int) -> float:
        total = 0.0
        for start in range(0, len(fed), per_row):
            part = fed[start : start + per_row]
            positions = len(prompt) + sum(part)
            if len(part) > 1 and positions > budget:
                return float("inf")
            total += positions + pair_cost * positions**2 * (1.0 if per_row > 1 else 0.5)
        return total

    return min(range(1, len(actions) + 1), key=cost, default=1)


def _ids(action: Action) -> Tensor:
    return torch.frombuffer(action.tokens, dtype=torch.int32)


def _layout(row: Row) -> tuple[Tensor, Tensor]:
    """Position and segment of each token fed: positions of every action continue from the prompt."""
    counts = torch.tensor([len(row.prompt), *(len(action.tokens) - 1 for action in row.actions)])
    others = (counts.cumsum(0) - counts - counts[0]).clamp(min=0)  # tokens of the actions before
    segments_S = torch.arange(len(counts)).repeat_interleave(counts)
    return torch.arange(len(segments_S)) - others[segments_S], segments_S


def _sources(row: Row, begin: int) -> Iterator[Tensor]:
    """Where each action token is predicted: the first by the last of the prompt, the others by the one before."""
    last = before = begin + len(row.prompt) - 1
    for action in row.actions:
        sources_T = torch.arange(before, before + len(action.tokens))
        sources_T[0] = last
        yield sources_T
        before += len(action.tokens) - 1
