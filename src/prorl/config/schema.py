"""What a recipe may say: every key with its type, bounds and one default. Unknown keys and nonsense are errors.

A recipe is YAML that names only what differs from these defaults; `extends:` takes up another recipe, and dotted
overrides from the command line come last; either leaves a task out by setting it to null. A field marked `Live` is a
hyperparameter of the step: it may change in a stage or by a command, and `Scheduled` ones may follow a schedule.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from prorl.config.fields import (
    MOST,
    Amount,
    Count,
    Length,
    Level,
    Listed,
    Live,
    Model,
    Number,
    Places,
    Positive,
    Schedule,
    Scheduled,
    Seconds,
    Share,
    Signed,
    Step,
    Steps,
    Text,
    TopP,
    off,
)

RUNTIME_SECTIONS = ("save", "deadlines", "guards", "backend", "cluster", "workers", "log")
"""Keys of a recipe that say where and how the processes run. `prorl resume` may change them: the run stays the same.

They change no result, but for two things: nothing is sampled ahead of a checkpoint, so with `sampling.max_staleness`
its time says which steps are on-policy; and another place rounds differently, which is journalled.
"""


class ShapeConfig(Model):
    """A model to build from nothing."""

    architecture: Literal["qwen2", "qwen3", "llama"] = "qwen3"
    hidden_size: Length = 128
    layers: Count = 4
    heads: Count = 4
    kv_heads: Count = 2
    intermediate_size: Length = 384
    context: Length = 512


class WarmupConfig(Model):
    """How the tiny base is made: supervised on solutions, cached by the hash of all this."""

    shape: ShapeConfig = ShapeConfig()
    vocab_size: Length = 1024
    steps: Steps = 400
    # Ends sooner, once the mean loss of 20 steps is this (nats per token): as much noise is left under every seed.
    until_loss: Amount = 0.0
    position_jumps: int = Field(0, ge=0, le=100)  # in a prompt, at most: short examples teach long distances
    batch_size: Count = 64
    lr: Positive = 2e-3
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon needs half as many steps
    corpus_problems: Steps = 20_000
    weights: dict[str, Amount] = Field(default_factory=dict)  # by task; default: as trained
    levels: dict[str, dict[Level, Amount]] = Field(default_factory=dict)  # by task; default: as trained


class ModelSection(Model):
    """Where the policy comes from: a transformers directory or hub id, or a tiny base warmed up here."""

    path: Text | None = None  # folder or hub id; or else `warmup`
    warmup: WarmupConfig | None = None
    shape: ShapeConfig | None = None  # of `path`, so that a dry run can check and estimate without the model
    parameters: float | None = Field(None, gt=0, le=1e14)  # of `path`, likewise


class AdaptiveConfig(Model):
    """Difficulty that follows the policy, one of its levels after the other. Off: leave it out."""

    start: int = Field(ge=-MOST, le=MOST)  # the highest level in play at first
    window: Count = 4  # so many of the highest levels in play are drawn equally
    raise_at: Share = 0.6  # mean score on the highest at which the next comes into play; 0.9 was published
    rollouts: Count = 256  # newest ones of the highest level over which that mean is taken
    replay: Share = 0.1  # of the draws, over all levels in play


class TaskConfig(Model):
    """One entry of the training mixture: a procedural task, a known data set, or your own: a task by `use`, rows of
    data by `kind` or `grade`."""

    weight: Amount = 1.0
    # Level → weight; default: all trained levels equally. With `adaptive`, validations alone draw by these weights.
    levels: dict[Level, Amount] = Field(default_factory=dict)
    adaptive: AdaptiveConfig | None = None
    # A task of your own: FILE.py:NAME (relative to the recipe), package.module:NAME, verifiers:ID or harbor:FOLDER.
    use: Text | None = None
    # How answers to rows of data are judged.
    kind: Literal["math", "choice", "quantity", "code", "instructions"] | None = None
    grade: Text | None = None  # or the function that judges them: FILE.py:NAME or package.module:NAME
    path: Text | None = None  # rows: a file (Parquet, JSON, JSONL, CSV), a folder as on the hub, or a hub id
    domain: Text | None = None  # of these rows; default: that of their kind
    # Field → column, where a file names them differently; dots lead into nested columns.
    columns: dict[Text, Text] = Field(default_factory=dict)
    # Regular expression whose last match in the column of the answer is the answer, or its first group.
    answer_pattern: Text | None = None
    limit: int | None = Field(None, gt=0, le=10**9)  # rows to read at most
    subset: Text | None = None  # of the hub's data set, which calls it a configuration
    split: Text | None = None  # of the hub's data set
    # Of the hub's repository. A run fills in that of local rows: a hash of their content.
    revision: Text | None = None


class SamplingConfig(Model):
    """How rollouts are sampled."""

    prompts_per_step: Annotated[Count, Live("prompts_per_step")] = 32  # informative groups
    samples_per_prompt: Annotated[Count, Live("samples_per_prompt")] = 16  # n
    response_limit: Annotated[Length, Live("response_limit")] = 8192  # T, tokens
    temperature: Annotated[Positive, Live("temperature")] = 1.0
    top_p: Annotated[TopP, Live("top_p")] = 1.0
    max_staleness: int = Field(0, ge=0, le=1)  # 1: sample the next step while this one is learned
    # Groups sampled beyond what a wave is expected to need and kept for later steps, as a share of that.
    partial: float = Field(0.0, ge=0, le=16)
    max_age: Count = 4  # steps after which such a group is begun anew


class DynamicSamplingConfig(Model):
    """Which groups are informative. Off: `min_spread: 0`."""

    min_spread: Annotated[Share, Live("min_spread")] = 0.1  # of a group's scores, highest less lowest
    # Groups drawn in a step at most, as a multiple of `prompts_per_step`.
    max_draw_factor: Annotated[float, Live("max_draw_factor"), Field(ge=1, le=1000)] = 4.0
    # More draws at once than expected to be needed, by so many standard deviations: a second wave is rarer.
    wave_margin: Annotated[float, Live("wave_margin"), Field(ge=0, le=100)] = 0.0


class LengthPenaltyConfig(Schedule):
    """Scheduled cosine length penalty. Off: `weight: 0`. The eta values and weight are our reading."""

    weight: Annotated[Amount, Live("length_weight")] = 0.1
    eta_min: Annotated[Signed, Live("length_eta_min")] = -1.0
    eta_max: Annotated[Signed, Live("length_eta_max")] = 0.0
    applies_to: Annotated[Literal["all", "correct"], Live("length_applies_to")] = "all"
    on_steps: Step = 100  # with the penalty, from `start_step`
    off_steps: Step = 500  # without it, and so on
    start_step: Step = 0

    def at(self, step: int) -> float:
        """The weight at a step: on for `on_steps`, off for `off_steps`, again and again from `start_step`."""
        since, cycle = step - self.start_step, self.on_steps + self.off_steps
        return self.weight if since >= 0 and self.on_steps and since % cycle < self.on_steps else 0.0


class TruncationConfig(Model):
    """Score of responses that hit the limit is multiplied by `scale`. Off: 1."""

    scale: Annotated[Share, Live("truncated_scale")] = 0.0


class AdvantageConfig(Model):
    """How rewards become advantages. `level` is over what they are normalised: tokens or sequences of the batch, or
    each group (GRPO), or nothing (rewards as they are); with `pass_at_k` the best of so many responses is rewarded.
    Off: `level: group`, `pass_at_k: 1`."""

    level: Annotated[Literal["token", "sequence", "group", "none"], Live("advantage_level")] = "token"
    pass_at_k: Annotated[Count, Live("pass_at_k")] = 1


class ClipConfig(Model):
    """PPO clip with clip-higher. Off: `high` equal to `low`."""

    low: Annotated[float, Live("clip_low"), Field(gt=0, lt=1)] = 0.2  # ratios below 1 - low are clipped
    high: Annotated[Positive, Live("clip_high")] = 0.28  # and those above 1 + high
    # Where the advantage is negative, the loss of a token is at most `dual` times its size.
    dual: Annotated[float | None, Live("dual_clip"), Field(gt=1, le=1e6)] = None


class MismatchConfig(Model):
    """Correction of differences between engine and learner. Off: `none`."""

    kind: Annotated[Literal["none", "tis", "icepop", "sequence_mask"], Live("mismatch")] = "none"
    low: Annotated[Amount, Live("mismatch_low")] = 0.5  # of exp(learner's log-prob - engine's); tis has none
    high: Annotated[Positive, Live("mismatch_high")] = 2.0  # likewise


class KLConfig(Model):
    """Penalty to the reference. Off: `coef: 0`, and then no reference is loaded."""

    coef: Annotated[Scheduled, Live("kl_coef")] = 1e-4
    estimator: Annotated[Literal["k2", "k3"], Live("kl_estimator")] = "k2"


class ResetConfig(Model):
    """When the policy becomes the reference. Off: `every: 0`, `stalled_validations: 0`, `kl_ceiling: null`."""

    every: Step = 250  # steps after the last reset; 0: off
    kl_ceiling: Positive | None = None  # nats per token, of the mean of k2 whatever `kl.estimator`
    kl_count: Count = 3  # so many of the last `kl_window` steps above the ceiling
    kl_window: int = Field(5, ge=1, le=32)
    stalled_validations: Number = 0  # validations without a new best; 0: off
    cooldown: Step = 20  # steps after a reset in which there is no other
    target: Literal["current", "best"] = "current"  # the policy that becomes it; best: of the best validation
    optimizer: Literal["keep", "clear"] = "keep"  # its moments


Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Model):
    """AdamW."""

    lr: Annotated[Scheduled, Live("learning_rate")] = 1e-6
    betas: Annotated[tuple[Beta, Beta], Listed] = (0.9, 0.95)
    weight_decay: Amount = 0.0
    grad_clip: Annotated[Positive, Live("grad_clip")] = 1.0
    updates_per_step: Annotated[Count, Live("updates_per_step")] = 1  # a step's rollouts are split among them


class LearnerConfig(Model):
    """How the learner computes; none of it changes the result beyond rounding."""

    micro_batch_tokens: Length = 16_384  # positions computed in one pass, padding included
    activation_checkpointing: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the matrix products; the weights are float32
    old_logprobs: Literal["engine", "learner"] = "engine"  # which computes those of the policy that sampled
    # Logits that exist at a time; default: 2^24, on a GPU 2^27.
    logits_elements: int | None = Field(None, gt=0, le=2**33)
    compile: bool = False  # layers and log-probs, by torch.compile; on a CPU in one process
    # Log-probs by torch's fused kernel (2.13); entropy is then estimated from the tokens that were sampled.
    fused_head: bool = False


class EngineConfig(Model):
    """How rollouts are decoded in one process; `cluster` says it for engines elsewhere."""

    max_rows: Count = 512  # responses decoded at a time


class JudgeConfig(Model):
    """How verdicts are reached."""

    workers: Count = 1  # processes
    deadline: Seconds = 8.0  # seconds, of one verdict
    memory_gib: Positive = 4.0  # of a process
    items_per_worker: Length = 200_000  # verdicts after which a process is replaced


class SandboxConfig(Model):
    """What keeps programs in that models write (docs/sandbox.md). `auto`: the safest that this machine has."""

    tier: Literal["auto", "A", "B", "C"] = "auto"
    unsafe: bool = False  # allow tier C, which contains next to nothing


class ValidationConfig(Model):
    """Validations during the run."""

    every: Step = 50  # steps; 0: none
    per_domain: Count = 64  # problems
    samples: Count = 4  # responses to each


class EvaluationConfig(Model):
    """The measurement before and after training, on problems that are never trained."""

    per_domain: Number = 100  # problems of the test split
    ood_per_domain: Number = 50  # problems of the levels and tasks that are out of domain
    per_level: Number = 0  # problems of each level
    samples: Count = 16  # responses to each
    temperature: Amount = 1.0  # 0: always the most probable token
    top_p: TopP = 1.0


class StageConfig(Model):
    """From step `at` on other hyperparameters hold: `set: {kl.coef: 1.0e-4, sampling.samples_per_prompt: 32}`."""

    at: Step
    set: dict[Text, Any] = Field(default_factory=dict)  # key → value
    mixture: dict[Text, Amount] = Field(default_factory=dict)  # task → weight from here on
    reset_reference: bool = False
    optimizer: Literal["keep", "clear"] = "keep"


class SaveConfig(Model):
    """Checkpoints. The base and the best validation's are always kept."""

    every: Steps = 50  # steps
    minutes: Amount = 60.0  # a checkpoint at least so often, whatever a step takes; 0: off
    keep_last: Count = 2  # newest ones that are kept
    keep_every: Step = 0  # keep those of every so many steps for good; 0: none


class DeadlinesConfig(Model):
    """Seconds without a sign of life after which the supervisor calls a phase hung and restarts the trainer.

    A phase that usually takes long may take `factor` times its median, if that is more. Decoding beats whenever a
    response ends, judging and validations likewise, and learning after every pass.
    """

    generate: Seconds = 3600.0
    judge: Seconds = 1800.0
    learn: Seconds = 1800.0
    sync: Seconds = 1800.0
    validation: Seconds = 3600.0
    measure: Seconds = 3600.0
    save: Seconds = 7200.0
    between: Seconds = 3600.0  # phases: decisions, references, the journal
    factor: float = Field(20.0, ge=2, le=1e6)


class GuardsConfig(Model):
    """The stop before the machine dies; 0 switches it off."""

    memory_stop: float = Field(0.02, ge=0, lt=1)  # share of the memory below which the run stops, saved


class ClusterConfig(Model):
    """Where `backend: ray` computes. Other places and numbers of processes change results by rounding alone."""

    address: Text | None = None  # of a running Ray cluster; default: one of its own on this machine
    learners: Places = 1  # ranks over which the learner is sharded
    engines: Places = 1  # copies of the policy that sample
    judges: int = Field(0, ge=0, le=4096)  # actors of `judge.workers` processes each; 0: beside the driver
    tensor_parallel: Places = 1  # GPUs of one engine, all in one node
    colocate: bool = False  # engine i on the GPU of rank i, which take turns
    room_deadline: Seconds = 60.0  # to find room for all processes; more where lost machines come back
    engine_deadline: Seconds = 600.0  # to start, take weights or decode a token; then it is replaced
    transfer: Literal["auto", "host", "nccl", "ipc"] = "auto"  # how new weights get to the engines
    # By vLLM: CUDA graphs alone, all, nothing
    compilation: Annotated[Literal["safe", "full", "off"], BeforeValidator(off)] = "safe"
    max_rows: Count = 512  # responses that an engine decodes at a time, if its cache holds them
    shared_queue: bool = False  # engines take prompts as they have rows: faster, and text differs by rounding
    context: Length | None = None  # tokens, of a prompt and its response; default: the model's
    offload: bool = False  # parameters and moments of several ranks in host memory between their uses
    cache_gib: Positive | None = None  # keys and values of an engine; default: 1 on a CPU, else all free


Action = Literal[
    "warn", "validation", "reset_reference", "lower_lr", "correct_mismatch", "roll_back", "pause", "stop"
]
READINGS = 16
"""Readings kept per detector; no rule may look further back."""
LOW_IS_BAD = frozenset({"entropy_collapse", "no_signal", "validation_collapse"})
"""Detectors that look for readings at or below their threshold; all others look for those at or above it."""


def is_hot(name: str, reading: float, level: float) -> bool:
    """Whether the reading of a detector is as bad as `level` or worse."""
    return reading <= level if name in LOW_IS_BAD else reading >= level


class DetectorConfig(Model):
    """When one detector warns, and what else it does (docs/operations.md)."""

    mode: Annotated[Literal["off", "warn", "act"], BeforeValidator(off)] = "warn"
    threshold: Signed  # of its reading, inclusive
    rearm: Signed  # having warned or acted, it is silent until a reading is better than this
    hits: Count = 1  # so many of the last `of_last` readings beyond the threshold, the newest among them
    of_last: int = Field(1, ge=1, le=READINGS)
    cooldown: Steps = 50  # steps between two of its messages
    max: Count = 3  # times it may act by itself; then it only warns, and one that rolls back stops the run
    action: Action = "warn"  # in mode act
    factor: float = Field(0.5, gt=0, le=1)  # of the learning rate: lower_lr, roll_back
    steps: Steps = 50  # for which it stays lowered


def _row(
    threshold: float, rearm: float, hits: int, of_last: int, action: Action, **more: Any
) -> DetectorConfig:
    """A detector that only warns unless a recipe, or `more`, says otherwise."""
    return DetectorConfig(threshold=threshold, rearm=rearm, hits=hits, of_last=of_last, action=action, **more)


_AT_ONCE = {"mode": "act", "cooldown": 1}  # of a run that cannot go on so


class DetectorsConfig(Model):
    """All detectors. A recipe names what it changes: `kl_spike: {mode: act}`.

    No thresholds were ever published; these are ours. They report nothing on runs of `nano`, and all the trouble in
    the traces of the tests. What each reading means is said in docs/operations.md.
    """

    # threshold, rearm, hits, of_last, action in mode act
    non_finite: DetectorConfig = _row(3, 1, 1, 1, "roll_back", **_AT_ONCE)
    kl_spike: DetectorConfig = _row(8.0, 4.0, 2, 3, "reset_reference")
    entropy_collapse: DetectorConfig = _row(0.02, 0.05, 5, 5, "pause")
    entropy_surge: DetectorConfig = _row(2.0, 1.5, 3, 5, "lower_lr")
    gradient_spike: DetectorConfig = _row(10.0, 3.0, 2, 5, "lower_lr")
    length_blowup: DetectorConfig = _row(1.5, 1.25, 3, 5, "roll_back")
    truncation_blowup: DetectorConfig = _row(0.2, 0.1, 3, 5, "roll_back")
    mismatch: DetectorConfig = _row(1.05, 1.02, 3, 5, "correct_mismatch")
    broken_engine: DetectorConfig = _row(1.5, 1.05, 5, 5, "stop", **_AT_ONCE)
    verifier_errors: DetectorConfig = _row(0.5, 0.25, 1, 1, "stop", **_AT_ONCE)
    truncated_share: DetectorConfig = _row(0.9, 0.8, 3, 3, "validation", mode="act")
    unanswered_share: DetectorConfig = _row(0.9, 0.8, 3, 3, "validation", mode="act")
    no_signal: DetectorConfig = _row(0.01, 0.05, 5, 5, "validation", mode="act")
    validation_collapse: DetectorConfig = _row(0.5, 0.75, 1, 1, "roll_back", **_AT_ONCE)
    reward_hacking: DetectorConfig = _row(0.05, 0.02, 2, 3, "pause")
    stalled_validation: DetectorConfig = _row(8, 1, 1, 1, "pause")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, data: Any) -> Any:
        """A row that is named in part keeps the rest of its defaults."""
        if not isinstance(data, dict):
            return data
        rows = {name: field.default.model_dump() for name, field in cls.model_fields.items()}
        return {
            name: rows[name] | row if name in rows and isinstance(row, dict) else row
            for name, row in data.items()
        }


class RunConfig(Model):
    """A whole run. `prorl train RECIPE --dry-run` prints it resolved."""

    # Of its folder in runs/; default: the file's name.
    name: Annotated[str, Field(min_length=1, max_length=100)]
    seed: int = Field(0, ge=-(2**63), lt=2**63)  # of all random numbers of the run
    steps: Steps = 3000
    backend: Literal["auto", "local", "ray"] = "auto"  # auto: ray on one GPU, if vLLM fits beside the learner
    device: Text = "auto"  # "auto": a GPU if there is one, else the CPU
    # Processes that compute on one set of weights, where the device is a CPU; they change no bit. 0: one per core.
    workers: int = Field(0, ge=0, le=64)
    # CPU threads of torch in each process; 0: cores divided by workers, or by the GPUs of a cluster, there at most 8.
    threads: int = Field(0, ge=0, le=4096)
    # How to answer: appended to the prompts of all tasks but data sets, which have their own.
    instruction: Annotated[str, Field(max_length=MOST)] = ""
    system_prompt: Annotated[str, Field(max_length=MOST)] = ""  # of all problems that come without one
    format: Literal["lenient", "strict"] = "lenient"  # strict: no answer counts before thinking is closed
    log: Literal["wandb", "trackio", "mlflow"] | None = None  # tracker that `prorl log` sends the run to
    data: Text | None = None  # folder of prepared data sets; default: in the cache, by what is asked for
    model: ModelSection
    tasks: dict[Text, TaskConfig] = Field(min_length=1, max_length=1000)
    sampling: SamplingConfig = SamplingConfig()
    dynamic_sampling: DynamicSamplingConfig = DynamicSamplingConfig()
    length_penalty: LengthPenaltyConfig = LengthPenaltyConfig()
    truncation: TruncationConfig = TruncationConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    clip: ClipConfig = ClipConfig()
    mismatch: MismatchConfig = MismatchConfig()
    kl: KLConfig = KLConfig()
    reset: ResetConfig = ResetConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    learner: LearnerConfig = LearnerConfig()
    engine: EngineConfig = EngineConfig()
    judge: JudgeConfig = JudgeConfig()
    sandbox: SandboxConfig = SandboxConfig()
    validation: ValidationConfig = ValidationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    cluster: ClusterConfig = ClusterConfig()
    save: SaveConfig = SaveConfig()
    detectors: DetectorsConfig = DetectorsConfig()
    deadlines: DeadlinesConfig = DeadlinesConfig()
    guards: GuardsConfig = GuardsConfig()
    stages: tuple[StageConfig, ...] = Field((), max_length=1000, strict=False)
    # Steps between those of which a few responses are kept to be read, beside those that verifiers fail in; 0: none.
    sample_every: Step = 10


HPARAMS: Mapping[str, str] = {
    f"{section}.{key}": str(mark)
    for section, held in RunConfig.model_fields.items()
    if isinstance(held.annotation, type) and issubclass(held.annotation, BaseModel)
    for key, field in held.annotation.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, Live)
}
"""Recipe key → field of `HParams`, of every field marked `Live`."""


def setting(config: RunConfig, key: str) -> Any:
    """What a recipe says under a dotted key `section.name`."""
    section, name = key.split(".")
    return getattr(getattr(config, section), name)
