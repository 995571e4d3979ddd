"""What a recipe says about where a run's processes are and how they are cared for, and not about the result.

Care changes not a bit of it, but for one thing: nothing is sampled ahead of a checkpoint, so with
`sampling.max_staleness` its time says which steps are on-policy. Another place rounds differently, which is said and
journalled.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prorl.config.dials import Amount, Count, Model, Positive, Seconds, Step, Steps, Text

SECTIONS = ("save", "deadlines", "guards", "backend", "cluster")
"""Keys of a recipe that `prorl resume` may change, as the run stays the same."""

Places = Annotated[int, Field(gt=0, le=4096)]
"""Processes of a cluster."""


class SaveConfig(Model):
    """Checkpoints. The base and the best exam's are always kept."""

    every: Steps = 50  # steps
    minutes: Amount = 60.0  # a checkpoint at least so often, whatever a step takes; 0: off
    keep_last: Count = 2
    keep_every: Step = 0  # keep those of every so many steps for good; 0: none
    keep_references: Literal["all", "needed"] = "all"  # needed: by the run now or by a kept checkpoint


class DeadlinesConfig(Model):
    """Seconds without a sign of life after which the supervisor calls a phase hung and restarts the trainer.

    A phase that usually takes long may take `factor` times its median, if that is more. Decoding beats whenever a
    response ends, judging and exams likewise.
    """

    generate: Seconds = 3600.0
    judge: Seconds = 1800.0
    learn: Seconds = 7200.0
    sync: Seconds = 1800.0
    exam: Seconds = 3600.0
    measure: Seconds = 3600.0
    save: Seconds = 7200.0
    between: Seconds = 3600.0  # phases: decisions, references, the journal
    factor: float = Field(20.0, ge=2, le=1e6)


class GuardsConfig(Model):
    """Warnings about memory and disk, and the stop before the machine dies. The zeros switch each off."""

    warn_steps: Step = 200  # warn where the trend uses either up within so many steps
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
    engine_deadline: Seconds = 600.0  # to start, take weights or finish another response; then it is replaced
    transfer: Literal["auto", "host", "nccl"] = "auto"  # how new weights get to the engines
    max_rows: Count = 512  # responses that an engine decodes at a time, if its cache holds them
    offload: bool = False  # parameters and moments of several ranks in host memory between their uses
    cache_gib: Positive | None = None  # keys and values of an engine; default: 1 on a CPU, else all free
