"""What can happen in a run: a closed union of frozen records. The journal is their sequence and is the truth.

Wall-clock seconds are reported in events for people; `evolve` never reads them, so two runs that differ only in
speed have the same state.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, get_args

from prorl.config.schema import Action
from prorl.types import UpdateStats


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStats:
    """What one step's collection drew, kept and threw away. Counts of groups unless said otherwise.

    Means are over the *judged* rollouts: those of consumed groups, accepted or rejected, without a verifier error.
    What was not measured is None.
    """

    draws: int  # consumed from the data order
    accepted: int  # trained on
    easy: int  # rejected: no spread, mean score above one half
    hard: int  # rejected: no spread, mean score at most one half
    errors: int  # dropped for a verifier error
    surplus: int  # generated past the last accepted draw; those draws come again next step
    rollouts: int  # responses that have ended, surplus included
    sampled_tokens: int  # of all responses
    score: float | None  # mean raw score over judged rollouts
    reward: float | None  # mean shaped reward over accepted rollouts
    length: float | None  # mean response length over judged rollouts, tokens
    truncated: float | None  # share of judged rollouts that hit the limit
    unanswered: float | None  # share of judged rollouts without an extractable answer
    domain_scores: Mapping[str, float]  # mean raw score per domain over judged rollouts
    # Share of verifier errors per domain over all consumed rollouts.
    domain_errors: Mapping[str, float] = field(default_factory=dict)
    # Of tasks with adaptive levels: the highest level in play, its judged rollouts and their mean score.
    top_levels: Mapping[str, int] = field(default_factory=dict)
    top_rollouts: Mapping[str, int] = field(default_factory=dict)
    top_scores: Mapping[str, float] = field(default_factory=dict)
    in_hand: int = 0  # unfinished or not needed yet, for the next step

    @property
    def informative_share(self) -> float | None:
        """Share of judged draws that teach; None when nothing was judged."""
        judged = self.draws - self.errors
        return self.accepted / judged if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run begins: the first reference is the model it starts from."""

    kind: ClassVar[str] = "started"
    config_hash: str
    reference_hash: str | None  # None when the run pays no KL penalty and so holds no reference
    environment: Mapping[str, str] = field(default_factory=dict)  # what else the bits of a result depend on


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A process took the run up again from the checkpoint of `step`, a branch under another config."""

    kind: ClassVar[str] = "resumed"
    step: int
    config_hash: str
    branched_from: str | None = None  # "run@step" whose copy this run is
    environment: Mapping[str, str] = field(default_factory=dict)  # as in `Started`, of this process
    stages: int | None = None  # of a branch: how many of its own stages begin at this step or before
    same_validation: bool = True  # of a branch: whether its validations ask what its parent's asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """One training step is done; `step` counts completed steps."""

    kind: ClassVar[str] = "stepped"
    step: int
    cursor: int  # next draw of the data order
    version: int  # policy version after the update
    rollout_stats: RolloutStats
    update: UpdateStats
    learning_rate: float
    length_weight: float
    kl_coef: float
    seconds: Mapping[str, float]
    # Steps between the oldest policy that sampled and the one that began to learn from it.
    staleness: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A validation on held-out problems: pass@1 per domain, and their mean as `score`."""

    kind: ClassVar[str] = "validated"
    step: int
    score: float
    domains: Mapping[str, float]
    pass_at_n: float  # n = samples per problem, mean over domains
    unanswered: float
    seconds: float
    responses: int = 0  # judged: they say how far chance may move the score
    response_limit: int | None = None  # tokens at which they were cut off; None: an older version did not say


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceReset:
    """A new reference was born."""

    kind: ClassVar[str] = "reference_reset"
    step: int
    name: str
    parent: str
    reason: str  # of `algo.reference_reset.ResetReason`; or stage, command, or the name of a detector
    target: Literal["current", "best"]
    source_step: int  # whose policy it is
    optimizer: Literal["keep", "clear", "new"]  # new: of the base
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntered:
    """From `step` on the hyperparameters of stage `index` hold."""

    kind: ClassVar[str] = "stage_entered"
    step: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRaised:
    """A task with adaptive levels has mastered its highest level: from `step` on the next one is in play as well."""

    kind: ClassVar[str] = "level_raised"
    step: int
    task: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervened:
    """A detector warned or acted, or the operator rolled the run back.

    What holds from here on is said in full: a roll back forgets what went before.
    """

    kind: ClassVar[str] = "intervened"
    step: int  # after a roll back, that of the checkpoint
    detector: str  # its name, or "command"
    action: Action
    reason: str
    numbers: Mapping[str, float]  # what the detector saw and what it compared it with; none of a command
    rearm: float | None = None  # until a reading is calm by this level it sees nothing
    acted: Mapping[str, int] = field(default_factory=dict)  # detector → times in this run, this one included
    lr_scale: float = 1.0  # of the learning rate, ...
    lr_until: int = 0  # ... up to this step
    from_step: int | None = None  # where the run stood before a roll back
    obeyed: int = 0  # bytes of the inbox that had been obeyed when the run was rolled back
    paused: str | None = None  # why the run was paused when it was rolled back, as it is again
    corrected: bool = False  # whether the mismatch was corrected when it was rolled back, as it is again


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGiven:
    """The operator gave a command, and it was taken in; or it is refused, for the reason given."""

    kind: ClassVar[str] = "command_given"
    step: int
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # recipe key → value, as given
    text: str = ""
    refused: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)  # hparams that the operator holds from here on
    inbox: int = 0  # bytes of the inbox that have been read, this command included


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The loop ended after `step` steps: `done`, `interrupted`, or in trouble."""

    kind: ClassVar[str] = "stopped"
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something about process or machine went wrong and the run goes on; it changes nothing that is computed."""

    kind: ClassVar[str] = "warned"
    step: int
    text: str


Event = (
    Started
    | Resumed
    | Stepped
    | Validated
    | ReferenceReset
    | StageEntered
    | LevelRaised
    | Intervened
    | CommandGiven
    | Stopped
    | Warned
)
R = TypeVar("R", bound=Event | RolloutStats | UpdateStats)
_KINDS: Mapping[str, type[Event]] = {cls.kind: cls for cls in get_args(Event)}


def to_record(event: Event) -> dict[str, Any]:
    """An event as plain JSON data."""
    return {"kind": event.kind, **asdict(event)}


def from_record(record: Mapping[str, Any], *, strict: bool = True) -> Event:
    """The event that `to_record` wrote. Unless `strict`, fields that this version does not know are ignored.

    ValueError for an unknown kind, or other fields, which means that another version wrote the journal.
    """
    data = dict(record)
    kind = data.pop("kind", None)
    if not (isinstance(kind, str) and kind in _KINDS):
        raise ValueError(
            f"the journal holds an event of unknown kind {kind!r}: was it written by a newer prorl?"
        )
    try:
        if kind == Stepped.kind:
            data["rollout_stats"] = _built(RolloutStats, data["rollout_stats"], strict)
            data["update"] = _built(UpdateStats, data["update"], strict)
        return _built(_KINDS[kind], data, strict)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the journal holds an event {kind!r} with other fields than expected ({error}): was it written by "
            "a newer prorl?"
        ) from error


def _built(cls: type[R], data: Mapping[str, Any], strict: bool) -> R:
    known = cls.__dataclass_fields__
    return cls(**{name: value for name, value in data.items() if strict or name in known})
