"""Measuring models: the base before a run and its policy after it, and any checkpoint or model against its base.

Both are evaluations: the same questions to several models, kept below a run's `evals/`. `test` problems are seen by
nothing in the run; `ood` problems are larger sizes and families never trained. An evaluation takes no run's lock, so
that a run can be studied while it trains. Problems are asked in chunks, each stored once it is done: an interrupted
evaluation ends with the results of an uninterrupted one.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

from prorl import build
from prorl.build import Session, check_sandbox
from prorl.config.recipe import RecipeError, changed, load_recipe, longest_limit
from prorl.config.schema import RunConfig
from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError
from prorl.envs.mixture import Mixture
from prorl.envs.seeds import derive, purpose
from prorl.envs.types import Problem, Split
from prorl.lab.evals.evaluation_store import (
    BASE,
    MEASUREMENT,
    Asked,
    Evaluation,
    Subject,
    differing,
    external_name,
    held,
    model_file,
    models,
    questions,
    read_evaluation,
    slug,
    write_evaluation,
)
from prorl.lab.evals.problems import Key, Part, ProblemResult, problem_result, with_guesses
from prorl.lab.results import Pair, evaluation_tables, gain_tables, halfway, level_tables, rate_tables
from prorl.lab.tables import Table, print_tables
from prorl.lab.watch.console import Console
from prorl.machine import begin_imports, require_processors
from prorl.rollout.pipeline import VerifierError, grouped, sample_problems
from prorl.run import layout
from prorl.run.checkpoint import intact, verify
from prorl.run.journal import Journal
from prorl.run.layout import CHECKPOINTS, EVALS, JOURNAL, REFERENCES, TOKENIZER, holder
from prorl.run.store import FIRST_REFERENCE, RunStore
from prorl.stopwatch import WAITING, Pulse, Stopwatch, unheard
from prorl.types import Backend, Sampling

WEIGHTS = "model.safetensors"
INCIDENTS = "incidents.jsonl"
# of a recipe, beside what is of rewards and losses
OF_TRAINING = {"steps", "sampling.temperature", "sampling.top_p", "optimizer", "kl", "reset", "save"}
RESPONSES_AT_A_TIME = 2048  # of a chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Subject):
    """A model that can be loaded: a checkpoint of a run, its base, or a model from elsewhere."""

    path: str | Path
    run: RunStore | None = None  # which holds the tokenizer, too


def checked_tasks(config: RunConfig, console: Console) -> Mixture:
    """The recipe's tasks, once it is known that their programs can be run here; judges on a cluster check it there.

    Raises RecipeError, DataError or SandboxError: with one sentence that says what to do.
    """
    require_processors(config)
    begin_imports(config)
    tasks = build.build_tasks(config)
    if not (config.backend == "ray" and config.cluster.judges) and (warning := check_sandbox(config)):
        console.say(warning)
    held_out: tuple[Split, ...] = ("validation", "test")
    for split in held_out:
        if domains := tasks.unmeasured(split):
            console.say(f"no {split} problems of {', '.join(domains)}: trained on, and not measured by them")
    return tasks


# -- around a run


def measure_base(store: RunStore, session: Session, console: Console, pulse: Pulse) -> None:
    """Measure the model a run starts from, once: a run that is begun again after a kill has it already."""
    if not model_file(store.folder / EVALS / MEASUREMENT, BASE).exists():
        _measure_served(Subject(model=BASE, step=0), store, session, console, pulse)


def compare_with_base(store: RunStore, step: int, session: Session, console: Console, pulse: Pulse) -> None:
    """Measure the policy of `step`, keep the results, and print them beside those of the base if it has any.

    The training is done whatever becomes of its measurement, so one that fails is said and fails nothing.
    """
    stored = model_file(store.folder / EVALS / MEASUREMENT, BASE)
    try:
        base = read_evaluation(stored) if stored.exists() else None
        subject = Subject(model=layout.step_name(step), step=step)
        trained = _measure_served(subject, store, session, console, pulse)
    except ProrlError as error:
        console.say(
            f"training is done, but step {step} was not compared with its base: {error}; "
            f"`prorl eval {store.folder} --name other` compares them in an evaluation of its own"
        )
        return
    if trained is not None:
        ks = tuple(sorted({1, trained.samples}))
        tables = rate_tables(trained, ks)
        if base is not None:
            pair = Pair(base=base, trained=trained)
            tables = [*gain_tables(pair, ks), *level_tables(pair, ks)]
        print_tables(tables, console.rich)


def _measure_served(
    subject: Subject, store: RunStore, session: Session, console: Console, pulse: Pulse
) -> Evaluation | None:
    """Ask the policy that is served now what the recipe asks; None where it asks nothing."""
    folder, asked = store.folder / EVALS / MEASUREMENT, asked_by(session.config, session.tasks)
    if not asked.questions:
        return None
    with held(folder, asked.rules()):
        return ask(asked, subject, folder, session, console, pulse)


def forget_other_questions(folder: Path, session: Session) -> None:
    """Drop a branch's copy of its parent's measurement where its own recipe asks otherwise."""
    folder = folder / EVALS / MEASUREMENT
    if differing(folder, asked_by(session.config, session.tasks).rules()):
        shutil.rmtree(folder)


# -- an evaluation on demand


def evaluate(
    model: str,
    *,
    against: str | None,
    recipe: str | None,
    settings: Sequence[str],
    ks: Sequence[int],
    name: str,
    out: Path | None,
    console: Console,
) -> list[Table]:
    """Measure `model` and what it is compared with as far as that is not stored yet; returns what it says.

    `settings` are changes to the recipe, which is the run's own unless one is named. A model from elsewhere has no
    base unless `against` names one. Raises ProrlError: with one sentence that says what to do.
    """
    if slug(name) != name:
        raise StorageError(f"an evaluation cannot be called {name!r}: use letters, digits, '_', '-' and '.'")
    source = find(model, console)
    if recipe is not None:
        config = load_recipe(recipe, settings)
    elif source.run is not None:
        config = changed(source.run.config, {}, settings)
    else:
        raise ProrlError(f"{model} is no run; for a model, say whose problems it is asked: --recipe NAME")
    config = build.settled(config)
    keys = [change.partition("=")[0] for change in settings]
    if idle := next((key for key in keys if {key, key.partition(".")[0]} & OF_TRAINING), None):
        raise RecipeError(
            f"{idle} changes nothing in an evaluation, which does not train and samples by evaluation.temperature "
            "and evaluation.top_p"
        )
    if ks[-1] > config.evaluation.samples:
        raise RecipeError(
            f"pass@{ks[-1]} needs as many responses per problem, not {config.evaluation.samples}: raise --samples, "
            "or lower --k"
        )
    require_free_gpus(source, config)
    tasks = checked_tasks(config, console)
    asked = asked_by(config, tasks)
    if not asked.questions:
        raise RecipeError(
            "this asks nothing: say --per-domain, --ood or --per-level above 0, of what the tasks have problems for"
        )
    where = source.run.folder / EVALS if source.run else Path(EVALS) / slug(source.model)
    folder, ks = (out or where) / name, ks if asked.samples > 1 else (1,)
    with held(folder, asked.rules()):
        base = _base(source, against, console)
        if base is not None and base.model == source.model:
            raise ProrlError(f"{model} and {against} are one model: say another one with --against")
        if base is not None and base.run is None and _stored(base, folder) is None:
            from prorl.learn.model import load_tokenizer

            load_tokenizer(base.path)  # fails now if there is no such model, not once the other is measured
        # The model first: its trainer may delete it soon.
        after = _measured(source, asked, folder, tasks, config, console)
        before = None if base is None else _measured(base, asked, folder, tasks, config, console)
        middle = None if before is None else between(folder, before, after)
    console.say(f"kept in {folder}: {', '.join(path.name for path in models(folder))}")
    if source.run is not None and out is None:
        console.say(f"to see it in pictures: prorl report {source.run.folder}")
    if before is None:
        return rate_tables(after, ks)
    return evaluation_tables(Pair(base=before, trained=after, between=middle), ks)


def find(name: str, console: Console) -> Source:
    """RUN, RUN@STEP (the run by directory or by its name below `runs/`), or else a model directory or hub id."""
    named, _ = layout.run_and_step(name)
    if not (layout.run_folder(Path(named)) / JOURNAL).exists():
        return Source(model=external_name(name), path=name, weights=_stamps(Path(name)))
    folder, step = layout.run_at(name)
    store = RunStore.open(folder, report=console.say)
    checkpoint = store.latest_checkpoint() if step is None else store.checkpoint(step)
    if checkpoint.step == 0:
        return base_of(store)
    return _of_run(store, checkpoint.path, layout.step_name(checkpoint.step), checkpoint.step)


def _stamps(folder: Path) -> str:
    """What says that the weights in a folder are still those of before; empty where there is no folder."""
    found = [(path.name, path.stat()) for path in sorted(folder.glob("*.safetensors"))]
    told = "".join(f"{name} {about.st_size} {about.st_mtime_ns}\n" for name, about in found)
    return blake2b(told.encode(), digest_size=8).hexdigest() if told else ""


def base_of(store: RunStore) -> Source:
    """The model that a run started from: its checkpoint of step 0, or its first reference of the same weights."""
    for path in (store.checkpoint_folder(0), store.folder / REFERENCES / FIRST_REFERENCE):
        if intact(path):
            return _of_run(store, path, BASE, 0)
    raise StorageError(
        f"the base of {store.folder} is gone ({CHECKPOINTS}/step_000000 and {REFERENCES}/{FIRST_REFERENCE}): "
        "say what to compare with, --against MODEL"
    )


def between(folder: Path, base: Evaluation, trained: Evaluation) -> Evaluation | None:
    """The checkpoint in an evaluation nearest to half of the way from `base` to `trained`, if any lies on it."""
    steps = layout.by_step(models(folder))
    step = halfway(steps, base, trained)
    return None if step is None else read_evaluation(steps[step])


def require_free_gpus(source: Source, config: RunConfig) -> None:
    """Check that an evaluation leaves GPUs to a run that trains: a Ray of its own would count them as free."""
    own = config.backend == "ray" and config.cluster.address is None and config.device == "cuda"
    if own and source.run is not None and holder(source.run.folder) is not None:
        raise ProrlError(
            f"{source.run.folder} is being trained, and the evaluation would take its GPUs: wait until it has ended, "
            "or name another cluster with --address"
        )


def _of_run(store: RunStore, path: Path, model: str, step: int) -> Source:
    weights = verify(path).files.get(WEIGHTS, {}).get("sha256", "")
    return Source(model=model, step=step, weights=weights, path=path, run=store)


def _base(source: Source, against: str | None, console: Console) -> Source | None:
    if against is not None:
        base = find(against, console)
        same = base.run is not None and source.run is not None and base.run.folder == source.run.folder
        return base if same else replace(base, model=external_name(against), step=None)
    return base_of(source.run) if source.run is not None and source.step != 0 else None


def _measured(
    source: Source, asked: Asked, folder: Path, tasks: Mixture, config: RunConfig, console: Console
) -> Evaluation:
    """The stored results of this very model, or new ones."""
    if (stored := _stored(source, folder)) is not None:
        console.say(f"{source.model} was measured before")
        return stored
    if source.run is not None and not Path(source.path).exists():
        raise StorageError(
            f"{source.path} was deleted meanwhile, as its trainer keeps the newest checkpoints (save.keep_last): "
            "give the same command again for one that is still there"
        )
    tokenizer = source.run.folder / TOKENIZER if source.run else None  # None: beside the model
    with build.build_session(
        config, source.path, tokenizer=tokenizer, tasks=tasks, with_reference=False
    ) as session:
        session.backend.sync(0)
        return ask(asked, source, folder, session, console)


def _stored(source: Source, folder: Path) -> Evaluation | None:
    path = model_file(folder, source.model)
    stored = read_evaluation(path) if path.exists() else None
    return stored if stored is not None and source.is_same(stored) else None


# -- questions and answers


def asked_by(config: RunConfig, tasks: Mixture) -> Asked:
    """What the section `evaluation` of a recipe asks, or a `RecipeError` that a domain has fewer problems."""
    section = config.evaluation
    sizes = {"test": section.per_domain, "ood": section.ood_per_domain, "levels": section.per_level}
    try:
        chosen = questions(tasks, **sizes)
    except ValueError as error:
        raise RecipeError(str(error)) from None
    limit = longest_limit(config)  # one for the base and the policies of all stages
    return Asked(
        questions=chosen,
        sizes=sizes,
        samples=section.samples if section.temperature else 1,  # greedy responses are all equal
        sampling=Sampling(temperature=section.temperature, top_p=section.top_p, limit=limit),
        system_prompt=config.system_prompt,
        format=config.format,
        seed=config.seed,
    )


def ask(
    asked: Asked, subject: Subject, folder: Path, session: Session, console: Console, pulse: Pulse = unheard
) -> Evaluation:
    """Ask the policy that the engine serves now all questions of the evaluation in `folder`, and store how it went.

    The caller holds the evaluation (`evaluation_store.held`). Chunks that an earlier try stored are not asked again.
    Problems of which no response could be judged are asked again at the end, those of a task together, which tells an
    outage that is waited for from a problem that nobody can judge; these are left out. A chunk of nothing else is not
    stored. Raises VerifierError: not one response to any problem could be judged; StorageError: no room, or a damaged
    chunk.
    """
    wanted = session.config.evaluation.samples
    if asked.sampling.temperature == 0 and wanted > 1:
        console.say(
            "evaluation.temperature=0 is greedy: all responses to a problem are equal, so each is asked once, not "
            f"{wanted} times, and there is only pass@1"
        )

    def wait(reason: str, seconds: float) -> None:
        console.say(reason)
        with Stopwatch(pulse).phase(WAITING):
            time.sleep(seconds)

    sampler = session.sampler(wait)
    path = model_file(folder, subject.model)
    aside = path.with_suffix(".parts")
    aside.mkdir(exist_ok=True)
    evaluation = partial(
        Evaluation, model=subject.model, step=subject.step, weights=subject.weights, samples=asked.samples
    )
    clock, threshold = Stopwatch(pulse, within="measure"), session.tasks.pass_threshold

    def measure(part: Part, problems: Sequence[Problem], seeds: Sequence[int]) -> Evaluation:
        began = time.perf_counter()
        groups = sample_problems(
            sampler, problems, samples=asked.samples, sampling=asked.sampling, seeds=seeds, clock=clock
        )
        found = (problem_result(group, part, threshold(group.problem.task)) for group in groups)
        return evaluation(problems=tuple(found), seconds=time.perf_counter() - began)

    asked_for = {
        (one.task, part, one.level, one.index): one for part, of in asked.questions.items() for one in of
    }
    total, done = len(asked_for), 0
    judged: dict[Key, ProblemResult] = {}
    seconds, failure = 0.0, None
    with ExitStack() as ending, console.progress(f"measuring {subject.model}") as progress:
        ending.callback(_keep_incidents, folder, subject, session.backend)
        for part, problems, seeds in _chunks(asked_for, asked):
            done += len(problems)
            stored = aside / f"{done:06d}.parquet"
            chunk = read_evaluation(stored) if stored.exists() else None
            if chunk is None or not subject.is_same(chunk):
                try:
                    chunk = measure(part, problems, seeds)
                except VerifierError as error:
                    failure = failure or error
                    continue
                write_evaluation(stored, chunk)
            judged |= {one.key: one for one in chunk.problems}
            seconds += chunk.seconds
            rate = asked.samples * len(judged) / seconds
            progress(done, total, f"problems × {asked.samples} responses, {rate:.0f} responses/s")
        unknown = {key: asked_for[key] for key in sorted(asked_for.keys() - judged)}
        for part, problems, seeds in _chunks(unknown, asked, "again", least=2):
            with suppress(VerifierError):
                judged |= {one.key: one for one in measure(part, problems, seeds).problems}
        if failure and not judged:
            raise failure
        results = with_guesses(
            sampler,
            [judged[key] for key in asked_for if key in judged],
            asked_for,
            seed=asked.seed,
            pass_threshold=threshold,
            clock=clock,
            progress=progress,
        )
        whole = evaluation(problems=tuple(results), seconds=seconds)
        write_evaluation(path, whole)
        shutil.rmtree(aside)
    if lost := total - len(results):
        console.say(f"{lost} of {total} problems are left out: no response to them could be judged")
    return whole


def _chunks(
    problems: Mapping[Key, Problem], asked: Asked, *place: str, least: int = 1
) -> Iterator[tuple[Part, Sequence[Problem], Sequence[int]]]:
    """Part, problems and seeds of every chunk, of at least `least` problems if there are as many."""
    size = max(least, RESPONSES_AT_A_TIME // asked.samples)
    for part, keys in grouped(problems, lambda key: key[1]).items():
        seeds = [derive(asked.seed, "measure", purpose(part), *place, number) for number in range(len(keys))]
        for chosen in (slice(start, start + size) for start in range(0, len(keys), size)):
            yield part, [problems[key] for key in keys[chosen]], seeds[chosen]


def _keep_incidents(folder: Path, subject: Subject, backend: Backend) -> None:
    """Keep beside the results what failed in the backend and was mended."""
    if incidents := backend.incidents():
        with closing(Journal(folder / INCIDENTS)) as journal:
            for text in incidents:
                journal.append({"model": subject.model, "time": time.time(), "text": text})
