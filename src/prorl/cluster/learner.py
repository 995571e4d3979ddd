"""The learner group: one actor per rank, each with the same `TorchLearner`, behind one `types.Learner`.

Every method is called on all ranks with the same arguments; the answer is rank 0's. Folders must be reachable from
the driver and from every rank. A rank that dies ends the run, and its supervisor resumes it.

Only `send` has a deadline of its own. Every call is made within a phase of the trainer's heartbeat, at whose end the
supervisor ends a trainer whose rank hangs, and with it all ranks (`run/process.py`). `join` and `build` come before
the first heartbeat: torch's process group gives up after half an hour where ranks do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist

from prorl.cluster.cluster import OverdueError, result, results
from prorl.cluster.settings import Device, EngineSettings, GpuSharing, free_address, use_interface_of
from prorl.cluster.weights import Copies, Sender, collect, same_stream
from prorl.learn.learner import LearnerSettings, TorchLearner
from prorl.learn.model import context_limit, eos_ids, load_model, load_tokenizer, pad_id, widths
from prorl.learn.packing import Share
from prorl.learn.parallel import Ranks, full_weights
from prorl.stopwatch import unheard
from prorl.types import Batch, HParams, UpdateStats

LOOK = 10.0  # seconds between two looks at how far the ranks are with an update


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the driver needs to know about the model, which only the ranks hold."""

    eos_ids: tuple[int, ...]
    context: int  # tokens
    widths: Mapping[str, int]  # which an engine's GPUs share, as `parts_problem` takes them
    config: str  # as transformers writes it, JSON
    deal: Callable[..., list[list[Share]]]  # how a batch of so many `updates` is dealt to the ranks


class LearnerRank:
    """One rank, in a process of its own."""

    def __init__(self, index: int, size: int) -> None:
        self._index, self._count = index, size
        self._snapshot: Callable[[Path], None] | None = None
        self._passed = 0
        self._sender: Sender | None = None

    def meeting(self) -> str:
        """An address of this machine at which the ranks can form their process group."""
        return "tcp://{}:{}".format(*free_address())

    def join(self, device: Device, meeting: str) -> str:
        """Join the process group of the ranks, a collective. Returns the id of this node.

        One that is alone forms a group, too: with FSDP it rounds as many do.
        """
        self._device = device
        use_interface_of(free_address()[0])
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, init_method=meeting, rank=self._index, world_size=self._count)
        self._group = Ranks.joined(device)
        return str(ray.get_runtime_context().get_node_id())

    def build(
        self, model: str, tokenizer: str, settings: LearnerSettings, *, with_reference: bool, copies: bool
    ) -> Facts:
        """Load model and tokenizer from a transformers directory or hub id, and keep this rank's shard.

        `copies`: this rank puts what is published into its node's store.
        Raises ModelError where they cannot be used, ValueError as `TorchLearner`.
        """
        self._copies = copies
        self._dtype: torch.dtype = getattr(torch, settings.dtype)  # of the weights that engines are given
        tokens = load_tokenizer(tokenizer)
        # A GPU never holds the whole model: it is sharded on its way there.
        whole = load_model(model, dtype=torch.float32, device="cpu")
        self._learner = TorchLearner(
            whole, settings, with_reference=with_reference, pad_id=pad_id(tokens, whole), ranks=self._group
        )
        return Facts(
            eos_ids=eos_ids(whole.generation_config, tokens),
            context=context_limit(whole),
            widths=widths(whole.config.get_text_config()),
            config=whole.config.to_json_string(),
            deal=self._learner.deal,
        )

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """A method of the learner."""
        return getattr(self._learner, method)(*arguments, **options)

    def learn(self, shares: Sequence[Any], hparams: HParams) -> UpdateStats:
        """One step on this rank's share of the batch, of which `shares` has a reference for each rank."""
        self._passed = 0
        return self._learner.begin(result(shares[self._index]), hparams, self._pass)()

    def passed(self) -> int:
        """Passes of the update made so far; answered in another thread while it learns."""
        return self._passed

    def _pass(self) -> None:
        self._passed += 1

    def publish(self, version: int) -> dict[str, Any]:
        """A reference to the whole `Weights` by the id of this node, if it is this rank that puts them there; a
        collective."""
        if not self._copies:
            for _ in full_weights(self._learner.policy):
                pass
            return {}
        weights = collect(self._learner.policy, version, self._dtype)
        return {ray.get_runtime_context().get_node_id(): ray.put(weights)}

    def connect(self, engines: Sequence[Any], settings: EngineSettings) -> str | None:
        """Form a group with the engines, and leave the one before it; on all ranks. Returns what has failed."""
        if self._sender is not None:
            self._sender.close()
        with same_stream(self._device):
            self._sender = Sender(
                self._learner.policy,
                self._dtype,
                self._device,
                rank=self._index,
                engines=engines,
                settings=settings,
                address=free_address(),
            )
        return self._sender.failure

    def send(self) -> str | None:
        """Send the policy to the engines of the group, also while they use the GPUs; a collective. Returns what has
        failed.
        """
        assert self._sender is not None, "called once there is a group"
        with same_stream(self._device), self._learner.policy_on_device():
            return self._sender.send()

    def snapshot(self) -> None:
        """Copy the state now; an earlier copy is dropped, so that there are never two."""
        self._snapshot = None
        self._snapshot = self._learner.snapshot()

    def write(self, folder: Path) -> None:
        """Write the snapshot, once, in a second thread of the actor while it learns."""
        write, self._snapshot = self._snapshot, None
        assert write is not None, "called before the next one is taken"
        write(folder)


class RayLearner:
    """`types.Learner` over the ranks."""

    def __init__(
        self,
        ranks: Sequence[Any],
        model: str,
        tokenizer: str,
        settings: LearnerSettings,
        *,
        with_reference: bool,
        device: Device,
        sharing: GpuSharing | None = None,
    ) -> None:
        """`ranks` are handles of `LearnerRank` actors; `sharing` where engines use the same GPUs.

        Raises as `LearnerRank.build`.
        """
        self._ranks = list(ranks)
        self._connected: Sequence[Any] = ()  # engines of the group that weights are sent to
        self._sharing = sharing
        self._stowed = False
        meeting = result(self._ranks[0].meeting.remote())
        nodes = results([rank.join.remote(device, meeting) for rank in self._ranks])

        def build(at: int) -> Any:
            copies = nodes.index(nodes[at]) == at  # the first of its node
            return self._ranks[at].build.remote(
                model, tokenizer, settings, with_reference=with_reference, copies=copies
            )

        built = [results([build(at) for at in wave]) for wave in one_per_node(nodes)]
        self.facts: Facts = built[0][0]
        if sharing is not None:
            sharing.acquire(self)  # as built it holds the GPUs, which engines need free to start

    def leave(self) -> None:
        """Keep all tensors in host memory until the learner uses the GPUs again."""
        self._ask("call", "stow")()
        self._stowed = True

    def begin_update(
        self, batch: Batch, hparams: HParams, beat: Callable[[], None] = unheard
    ) -> Callable[[], UpdateStats]:
        """Begin one step on all ranks, each of which takes its own rows."""
        shares = [ray.put(share) for share in self.facts.deal(batch, updates=hparams.updates_per_step)]
        self._acquire()
        return partial(self._finish, [rank.learn.remote(shares, hparams) for rank in self._ranks], beat)

    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-probs of `tokens` after `prompt`: the learner's side of the probe."""
        logps: list[float] = self._all("call", "score", prompt, tokens)
        return logps

    def publish(self, version: int) -> Copies:
        """The policy's weights, on every node that holds a rank; also while the engines use the GPUs."""
        found = results([rank.publish.remote(version) for rank in self._ranks])
        return Copies(by_node={node: copy for one in found for node, copy in one.items()})

    def send(self, engines: Sequence[Any], settings: EngineSettings) -> str | None:
        """Send the policy straight to engine actors; returns what has failed at their end, if something has.

        Raises OverdueError or RayActorError where the ranks themselves hang or have died.
        """
        steps: list[tuple[str, tuple[Any, ...]]] = [("send", ())]
        if self._connected != engines:  # one of them is new, and an NCCL group cannot grow
            self._connected = ()
            steps.insert(0, ("connect", (engines, settings)))
        for step, arguments in steps:
            asked = [getattr(rank, step).remote(*arguments) for rank in self._ranks]
            try:
                failures = list(filter(None, results(asked, within=2 * settings.engine_deadline)))
            except OverdueError as error:
                raise OverdueError(
                    f"learner ranks and engines have not come to an end with `{step}` of a direct transfer of "
                    "weights: where that happens again, go on with cluster.transfer=host"
                ) from error
            if failures:
                return str(failures[0])
        self._connected = engines
        return None

    def reset_reference(self, source: Path | None, *, clear_optimizer: bool) -> None:
        """Make the policy, or the weights in a checkpoint folder, the reference."""
        folder = None if source is None else source.absolute()
        self._all("call", "reset_reference", folder, clear_optimizer=clear_optimizer)

    def snapshot(self) -> Callable[[Path], None]:
        """Copy policy and optimizer as they are now; the returned function has the ranks write them, once."""
        self._all("snapshot")
        # From host memory, whoever uses the GPUs; `Checkpointer` waits for it before it takes the next.
        return lambda folder: self._ask("write", folder.absolute())()

    def restore(self, folder: Path) -> None:
        """Load what a snapshot wrote, here or on one process."""
        self._all("call", "restore", folder.absolute())

    def save_reference(self, folder: Path) -> None:
        """Write the reference weights."""
        self._all("call", "save_reference", folder.absolute())

    def _finish(self, learning: Sequence[Any], beat: Callable[[], None]) -> UpdateStats:
        """Wait for all ranks. They make every pass together, so the first one's tell that none hangs."""
        seen = 0
        while True:
            try:
                update: UpdateStats = results(learning, within=LOOK)[0]
                return update
            except OverdueError:
                with suppress(OverdueError):
                    passed = result(self._ranks[0].passed.remote(), within=LOOK)
                    if passed > seen:
                        seen = passed
                        beat()

    def _all(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Acquire the GPUs, ask all ranks and wait for them; rank 0's answer."""
        self._acquire()
        return self._ask(method, *arguments, **options)()

    def _acquire(self) -> None:
        if self._sharing is not None:
            self._sharing.acquire(self)
        if self._stowed:
            self._ask("call", "fetch")()
            self._stowed = False

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
        asked = [getattr(rank, method).remote(*arguments, **options) for rank in self._ranks]
        return lambda: results(asked)[0]


def one_per_node(nodes: Sequence[str]) -> list[list[int]]:
    """Ranks, given the node of each, in waves that build at once: a rank holds a whole model meanwhile."""
    earlier = [nodes[:at].count(node) for at, node in enumerate(nodes)]
    return [[at for at, wave in enumerate(earlier) if wave == now] for now in sorted(set(earlier))]
