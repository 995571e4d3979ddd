"""What a recipe may say: pydantic models with every default in one place. Unknown keys and nonsense are errors.

A recipe is YAML that names only what differs from these defaults; `extends:` takes up another recipe, and
dotted overrides from the command line come last; either leaves a task out by setting it to null. Which keys are
knobs (and so may be a schedule over steps or change in a stage) is said by `KNOBS`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from prorl.config.care import ClusterConfig, DeadlinesConfig, GuardsConfig, SaveConfig
from prorl.config.contradictions import contradictions
from prorl.config.detecting import DetectorsConfig
from prorl.config.dials import (
    MOST,
    Amount,
    Count,
    Dial,
    Length,
    Level,
    Listed,
    Model,
    Number,
    Positive,
    Seconds,
    Share,
    Signed,
    Step,
    Steps,
    Text,
)


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
    """How the tiny base is made: supervised on witnesses, cached by the hash of all this."""

    shape: ShapeConfig = ShapeConfig()
    vocab_size: Length = 1024
    steps: Steps = 400
    batch_size: Count = 64
    lr: Positive = 2e-3
    corpus_problems: Steps = 20_000
    levels: dict[str, dict[Level, Amount]] = Field(
        default_factory=dict
    )  # task → level weights; default: as trained


class ModelSection(Model):
    """Where the policy comes from: a transformers directory or hub id, or a tiny base warmed up here."""

    path: Text | None = None
    warmup: WarmupConfig | None = None
    shape: ShapeConfig | None = None  # of `path`, so that a dry run can check and estimate without the model
    parameters: float | None = Field(None, gt=0, le=1e14)  # of `path`, likewise

    @model_validator(mode="after")
    def _one_source(self) -> ModelSection:
        if (self.path is None) == (self.warmup is None):
            raise ValueError(
                "say either `path` (a transformers directory or hub id) or `warmup`, exactly one"
            )
        return self


class TaskConfig(Model):
    """One entry of the training mixture: a procedural task, a known data set or, with `kind`, your own."""

    weight: Amount = 1.0
    levels: dict[Level, Amount] = Field(
        default_factory=dict
    )  # level → weight; default: all trained levels equally
    kind: Literal["math", "choice", "quantity", "code", "instructions"] | None = (
        None  # how answers are judged
    )
    path: Text | None = None  # Parquet or JSONL to read a data set from, in place of the hub
    columns: dict[Text, Text] = Field(
        default_factory=dict
    )  # field → column, where a file names them differently
    limit: int | None = Field(None, gt=0, le=10**9)  # rows to read at most
    revision: Text | None = None  # of the hub's repository

    @model_validator(mode="after")
    def _one_sort(self) -> TaskConfig:
        if self.kind is not None and self.path is None:
            raise ValueError("`kind` describes rows of your own: say where they lie with `path`")
        if self.levels and (self.kind or self.path):
            raise ValueError("a data set has no `levels`")
        return self


class SamplingConfig(Model):
    """How rollouts are sampled."""

    prompts_per_step: Count = 32  # informative groups
    samples_per_prompt: Count = 16  # n
    response_limit: Length = 8192  # T, tokens
    temperature: Positive = 1.0
    top_p: float = Field(1.0, gt=0, le=1)
    max_staleness: int = Field(0, ge=0, le=1)  # 1: sample the next step while this one is learned


class DynamicSamplingConfig(Model):
    """Which groups teach. Off: `min_spread: 0`."""

    min_spread: Share = 0.1
    max_draw_factor: float = Field(4.0, ge=1, le=1000)
    wave_margin: float = Field(
        0.0, ge=0, le=100
    )  # standard deviations of its yield; more draws, fewer second waves


class LengthPenaltyConfig(Model):
    """Scheduled cosine length penalty. Off: `weight: 0`. The eta values and weight are our reading."""

    weight: Amount = 0.1
    eta_min: Signed = -1.0
    eta_max: Signed = 0.0
    applies_to: Literal["all", "correct"] = "all"
    on_steps: Step = 100
    off_steps: Step = 500
    start_step: Step = 0


class TruncationConfig(Model):
    """Score of responses that hit the limit is multiplied by `scale`. Off: 1."""

    scale: Share = 0.0


class AdvantageConfig(Model):
    """Over what the second normalisation runs: tokens or sequences of the batch, or each group (GRPO)."""

    level: Literal["token", "sequence", "group"] = "token"


class ClipConfig(Model):
    """PPO clip with clip-higher. Off: `high` equal to `low`."""

    low: float = Field(0.2, gt=0, lt=1)
    high: Positive = 0.28
    dual: float | None = Field(None, gt=1, le=1e6)


class MismatchConfig(Model):
    """Correction of differences between engine and learner. Off: `none`."""

    kind: Literal["none", "tis", "icepop", "sequence_mask"] = "none"
    low: Amount = 0.5
    high: Positive = 2.0


class KLConfig(Model):
    """Penalty to the reference. Off: `coef: 0`, and then no reference is loaded."""

    coef: Dial = 1e-4
    estimator: Literal["k2", "k3"] = "k2"


class ResetConfig(Model):
    """When the policy becomes the reference. Off: `every: 0`, `stalled_exams: 0`, `kl_ceiling: null`."""

    every: Step = 250
    kl_ceiling: Positive | None = None  # nats per token, of the mean of k2 whatever `kl.estimator`
    kl_count: Count = 3
    kl_window: int = Field(5, ge=1, le=32)
    stalled_exams: Number = 0
    cooldown: Step = 20
    target: Literal["current", "best"] = "current"
    optimizer: Literal["keep", "clear"] = "keep"


Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Model):
    """AdamW."""

    lr: Dial = 1e-6
    betas: Annotated[tuple[Beta, Beta], Listed] = (0.9, 0.95)
    weight_decay: Amount = 0.0
    grad_clip: Positive = 1.0
    updates_per_step: Count = 1


class LearnerConfig(Model):
    """How the learner computes; none of it changes the result beyond rounding."""

    micro_batch_tokens: Length = 16_384
    share_prefix: Literal["auto", "never"] = "auto"
    activation_checkpointing: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"
    old_logprobs: Literal["engine", "learner"] = "engine"


class EngineConfig(Model):
    """How rollouts are decoded in one process; `cluster` says it for engines elsewhere."""

    max_rows: Count = 512


class JudgeConfig(Model):
    """How verdicts are reached: worker processes, seconds and memory per item, items until a worker is replaced."""

    workers: Count = 1
    deadline: Seconds = 8.0
    memory_gib: Positive = 4.0
    items_per_worker: Length = 200_000


class SandboxConfig(Model):
    """What keeps programs in that models write (docs/sandbox.md). `auto`: the safest that this machine has."""

    tier: Literal["auto", "A", "B", "C"] = "auto"
    unsafe: bool = False  # allow tier C, which contains next to nothing


class ExamConfig(Model):
    """Exams during the run."""

    every: Step = 50
    per_domain: Count = 64
    samples: Count = 4


class EvaluationConfig(Model):
    """The measurement before and after: problems per domain of the test split, out of domain, and of each rung."""

    per_domain: Number = 100
    ood_per_domain: Number = 50
    ladder_per_level: Number = 0
    samples: Count = 16
    temperature: Amount = 1.0  # 0: always the most probable token
    top_p: float = Field(1.0, gt=0, le=1)


class StageConfig(Model):
    """From step `at` on other knobs hold: `set: {kl.coef: 1.0e-4, sampling.samples_per_prompt: 32}`."""

    at: Step
    set: dict[Text, Any] = Field(default_factory=dict)
    mixture: dict[Text, Amount] = Field(default_factory=dict)  # task → weight from here on
    reset_reference: bool = False
    optimizer: Literal["keep", "clear"] = "keep"


class RunConfig(Model):
    """A whole run. `prorl train RECIPE --dry-run` prints it resolved."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    seed: int = Field(0, ge=-(2**63), lt=2**63)
    steps: Steps = 3000
    backend: Literal["local", "ray"] = "local"
    device: Text = "auto"  # "auto": a GPU if there is one, else the CPU
    threads: int = Field(
        0, ge=0, le=4096
    )  # CPU threads of torch in each process; 0: as many as there are cores
    instruction: Annotated[str, Field(max_length=MOST)] = (
        ""  # how to answer: appended to the prompts of all tasks but data sets, which have their own
    )
    format: Literal["lenient", "strict"] = "lenient"  # strict: no answer counts before thinking is closed
    data: Text | None = (
        None  # folder of prepared data sets; default: in the cache, by what the recipe asks for
    )
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
    exam: ExamConfig = ExamConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    cluster: ClusterConfig = ClusterConfig()
    save: SaveConfig = SaveConfig()
    detectors: DetectorsConfig = DetectorsConfig()
    deadlines: DeadlinesConfig = DeadlinesConfig()
    guards: GuardsConfig = GuardsConfig()
    stages: tuple[StageConfig, ...] = Field((), max_length=1000, strict=False)
    sample_every: Step = 10

    @model_validator(mode="after")
    def _meaningful(self) -> RunConfig:
        for problem in contradictions(self, shape_of(self)):
            raise ValueError(problem)
        return self


KNOBS = {
    "sampling.prompts_per_step": "prompts_per_step",
    "sampling.samples_per_prompt": "samples_per_prompt",
    "sampling.response_limit": "response_limit",
    "sampling.temperature": "temperature",
    "sampling.top_p": "top_p",
    "dynamic_sampling.min_spread": "min_spread",
    "dynamic_sampling.max_draw_factor": "max_draw_factor",
    "dynamic_sampling.wave_margin": "wave_margin",
    "length_penalty.weight": "length_weight",
    "length_penalty.eta_min": "length_eta_min",
    "length_penalty.eta_max": "length_eta_max",
    "length_penalty.applies_to": "length_applies_to",
    "truncation.scale": "truncated_scale",
    "advantage.level": "advantage_level",
    "clip.low": "clip_low",
    "clip.high": "clip_high",
    "clip.dual": "dual_clip",
    "mismatch.kind": "mismatch",
    "mismatch.low": "mismatch_low",
    "mismatch.high": "mismatch_high",
    "kl.coef": "kl_coef",
    "kl.estimator": "kl_estimator",
    "optimizer.lr": "learning_rate",
    "optimizer.grad_clip": "grad_clip",
    "optimizer.updates_per_step": "updates_per_step",
}
"""Recipe key → field of `Knobs`: what may change while a run goes on."""


def shape_of(config: RunConfig) -> ShapeConfig | None:
    """The model's shape as far as the recipe knows it."""
    return config.model.warmup.shape if config.model.warmup else config.model.shape
