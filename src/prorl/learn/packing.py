"""Batch → rows → forward passes: which tokens share a row, which rank computes it, and the tensors of a pass.

A row is one prompt followed by one or several of its actions. With several, the prompt is computed once for all of
them: each action sees the prompt and itself only, and its positions continue from the prompt, so every log-prob is
what it is in a row of its own. The last token of an action predicts nothing and is not fed. Invariants: an action is
never cut; every action token is predicted exactly once; all ranks make the same number of passes; counts are over all
ranks, so a denominator needs no communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import torch
from torch import Tensor

from prorl.learn.linear import ROWS
from prorl.types import Action, Batch, PromptActions

SHORTEST_SHARE = 0.8  # of the longest row of a padded micro-batch, which bounds what is computed in vain
MOST_KEYS = 2**18  # that tiles copy of what is put together; up to 512 positions never have more


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
class Tiles:
    """Attention in rows that share prompts: some queries of one segment at a time, to the keys that they see.

    A segment is a prompt, which sees itself, or an action, which sees its prompt too. Attention of a whole row would
    compute four to seven pairs for each that counts. T tiles of Q queries and K keys, N positions.
    """

    queries_M: Tensor  # positions of the T·Q queries; after a segment's end its last one again
    keys_M: Tensor  # and of the T·K keys
    bias: Tensor  # minus infinity where a query does not see a key, shape T1QK
    places_N: Tensor  # of each position among the queries
    texts_N: Tensor  # of each position in its own text, which is the prompt and one action

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Tiles:
        """For the positions of all rows, one after the other."""
        segments: list[tuple[range, range]] = []  # what is before it in its text, and its own positions
        end = 0
        for row in rows:
            prompt = range(end, end := end + len(row.prompt))
            segments.append((range(0), prompt))
            segments += [(prompt, range(end, end := end + len(action.tokens) - 1)) for action in row.actions]
        most = -(-max(len(before) + len(own) for before, own in segments) // ROWS) * ROWS
        lengths = [len(own) for _, own in segments]
        # As measured: what is filled up costs as much, and each tile something to begin and to copy its keys.
        size = min(
            range(4, max(lengths) + 4, 4),
            key=lambda size: sum(-(-length // size) for length in lengths) * (size + 4 + most // 16),
        )
        lists: tuple[list[int], ...] = [], [], [], []
        queries, keys, places, texts = lists
        for before, own in segments:
            count = -(-len(own) // size)
            places += range(len(queries), len(queries) + len(own))
            texts += range(len(before), len(before) + len(own))
            queries += [*own, *[*own[-1:]] * (count * size - len(own))]
            keys += [*before, *own, *[end] * (most - len(before) - len(own))] * count
        queries_M, keys_M = torch.tensor(queries), torch.tensor(keys)
        hidden_TQK = keys_M.view(-1, 1, most) > queries_M.view(-1, size, 1)
        return cls(
            queries_M=queries_M,
            keys_M=keys_M.clamp_(max=end - 1),
            bias=torch.zeros(hidden_TQK.shape).masked_fill_(hidden_TQK, -torch.inf)[:, None],
            places_N=torch.tensor(places),
            texts_N=torch.tensor(texts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Tensors of one forward pass. R rows, S positions; B actions, T tokens of the longest; N action tokens.

    The N entries are the true entries of `mask_BT` in row-major order. With tiles all rows are one, without padding.
    """

    tokens_RS: Tensor
    tiles: Tiles | None  # None: one action per row, which sees all that is before
    sources_N: Tensor  # index into the flattened (R·S) positions: the one that predicts the token
    targets_N: Tensor
    mask_BT: Tensor  # bool
    engine_logps_BT: Tensor
    advantages_BT: Tensor


def plan_rows(groups: Sequence[PromptActions], *, budget: int, pair_cost: float | None) -> list[Row]:
    """Rows for all actions, in order: as many of a group in each as `budget` positions and `MOST_KEYS` allow, or one.

    `pair_cost`: of a query-key pair, in units of a token's share of the linear layers. None gives every action a row
    of its own; so does a prompt that is cheaper to compute again than those pairs of the longest action that causal
    attention spares, half of them. A prompt has at least one token, which predicts the first of every action.
    """
    rows: list[Row] = []
    for group in groups:
        actions = [action for action in group.actions if action.tokens]
        longest = max((len(action.tokens) for action in actions), default=0)
        sharing = pair_cost is not None and pair_cost * longest**2 / 2 < len(group.prompt)
        for number, action in enumerate(actions):
            earlier = rows[-1].actions if number and sharing else ()
            more = Row(prompt=group.prompt, actions=(*earlier, action))
            if earlier and more.positions <= budget and _fewest_keys([more]) <= MOST_KEYS:
                rows[-1] = more
            else:
                rows.append(Row(prompt=group.prompt, actions=(action,)))
    return rows


def gather_rows(rows: Sequence[Row], *, budget: int) -> list[list[Row]]:
    """Rows sorted by length and cut into micro-batches of at most `budget` positions, padding included.

    A row longer than the budget stands alone, and one that would be padded much starts anew, as does one after which
    tiles would copy the keys of a long text for many short ones. The sort is stable, so the result depends on the
    input order only.
    """
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.positions, reverse=True):
        more = [*(batches or [[]])[-1], row]
        if shares_prompt(more):
            alike = _fewest_keys(more) <= MOST_KEYS
        else:
            alike = row.positions >= SHORTEST_SHARE * more[0].positions
        if batches and alike and _computed(more) <= budget:
            batches[-1] = more
        else:
            batches.append([row])
    return batches


def shares_prompt(rows: Sequence[Row]) -> bool:
    """Whether a micro-batch of these rows has several actions behind one prompt."""
    return any(len(row.actions) > 1 for row in rows)


def _fewest_keys(rows: Sequence[Row]) -> int:
    """Keys that `Tiles` of these rows copy at least: for every segment as many as the longest text has."""
    segments = sum(1 + sum(len(action.tokens) > 1 for action in row.actions) for row in rows)
    return segments * max(len(row.prompt) + len(action.tokens) - 1 for row in rows for action in row.actions)


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
    if shares_prompt(rows):
        return sum(row.positions for row in rows)
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
        plans = [gather_rows(dealt, budget=budget) for dealt in deal(rows, ranks)]
        if ranks > 1:
            plans = min(plans, deal_rounds(rows, ranks, budget=budget), key=lockstep)
        tokens = sum(group.action_tokens for group in groups[start:end])
        positions = sum(_computed(part) for plan in plans for part in plan)
        for share, plan in zip(shares, plans, strict=True):
            passes = (*map(tuple, plan), *[()] * (max(map(len, plans)) - len(plan)))
            share.append(Share(passes=passes, action_tokens=tokens, positions=positions))
    return shares


def micro_batch(rows: Sequence[Row], *, pad_id: int, device: torch.device) -> MicroBatch:
    """Tensors for `rows` on `device`, right-padded; without rows those of a pass that predicts nothing."""
    rows = rows or [Row(prompt=(pad_id,), actions=())]
    tiles, width = Tiles.of(rows) if shares_prompt(rows) else None, max(row.positions for row in rows)
    tokens: list[int] = []
    sources: list[int] = []
    for row in rows:
        begin, last = len(tokens), len(tokens) + len(row.prompt) - 1
        tokens += row.prompt
        for action in row.actions:
            # The first is predicted by the last of the prompt, the others by the one before.
            sources += [last, *range(len(tokens), len(tokens) + len(action.tokens) - 1)]
            tokens += action.tokens[:-1]
        tokens += [pad_id] * (0 if tiles else begin + width - len(tokens))
    actions = [action for row in rows for action in row.actions]
    lengths_B = torch.tensor([len(action.tokens) for action in actions], dtype=torch.long)
    mask_BT = torch.arange(max((len(action.tokens) for action in actions), default=0)) < lengths_B[:, None]
    logps_N = torch.tensor([logp for action in actions for logp in action.engine_logps])
    advantages_B = torch.tensor([action.advantage for action in actions], dtype=torch.float32)
    targets = [token for action in actions for token in action.tokens]
    return MicroBatch(
        tokens_RS=torch.tensor(tokens, device=device).view(1 if tiles else len(rows), -1),
        tiles=tiles,
        sources_N=torch.tensor(sources, dtype=torch.long, device=device),
        targets_N=torch.tensor(targets, dtype=torch.long, device=device),
        mask_BT=mask_BT.to(device),
        engine_logps_BT=torch.zeros(mask_BT.shape).masked_scatter_(mask_BT, logps_N).to(device),
        advantages_BT=torch.where(mask_BT, advantages_B[:, None], 0.0).to(device),
    )
