"""A long run's report: how long it takes to write, how large it is, and how long a browser takes to show it.

    python benchmarks/report.py [--steps 3000] [--records 100000] [--opens 5] [--keep FOLDER]

The run is made up from the event records, with curves as real runs have them. A page counts as open when every
figure on the screen is drawn, in headless Chromium; what the page computed meanwhile is told apart, since on a busy
machine the rest is waiting for a core.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from statistics import median

from prorl.config.recipe import load_recipe, to_json
from prorl.control.events import (
    Event,
    Intervened,
    ReferenceReset,
    RolloutStats,
    Started,
    Stepped,
    Stopped,
    Validated,
    to_record,
)
from prorl.envs.files import encode_json
from prorl.lab.report.sections import sections, write_report
from prorl.run.history import read_history
from prorl.run.journal import Chain
from prorl.run.layout import CONFIG, JOURNAL, SAMPLES, step_name
from prorl.types import UpdateStats

DOMAINS = ("math", "code", "stem", "logic", "instruct")
RESET_EVERY, VALIDATION_EVERY, SAMPLE_EVERY, WARN_EVERY = 250, 50, 10, 400
VISIBLE_DRAWN = """() => {
  const plots = [...document.querySelectorAll(".plot")];
  const visible = plots.filter((plot) => plot.getBoundingClientRect().top < innerHeight);
  return document.querySelector("main > section") && visible.every((plot) => plot.dataset.drawn);
}"""


def synthesise(folder: Path, *, steps: int, records: int) -> None:
    """A run directory with a whole journal and sample rollouts, and no model."""
    (folder / SAMPLES).mkdir(parents=True)
    config = to_json(load_recipe("nano", [f"steps={steps}", f"sample_every={SAMPLE_EVERY}"]))
    (folder / CONFIG).write_bytes(encode_json(config, indent=2))
    with (folder / JOURNAL).open("wb") as journal:
        chain = Chain()
        for event in _events(steps, random.Random(0)):
            line = chain.encode(to_record(event))
            chain.take(line)
            journal.write(line)
    files = range(SAMPLE_EVERY, steps + 1, SAMPLE_EVERY)
    for step in files:
        lines = (encode_json(_sample(step, number)) for number in range(records // len(files)))
        (folder / SAMPLES / f"{step_name(step)}.jsonl").write_bytes(b"".join(lines))


def _events(steps: int, dice: random.Random) -> Iterator[Event]:
    yield Started(config_hash="0" * 16, reference_hash="0" * 64)
    yield _validation(0, steps, dice)
    references = 0
    for step in range(1, steps + 1):
        yield _step(step, steps, dice)
        if step % VALIDATION_EVERY == 0:
            yield _validation(step, steps, dice)
        if step % RESET_EVERY == 0:
            references += 1
            yield ReferenceReset(
                step=step,
                name=f"ref_{references:03d}",
                parent=f"ref_{references - 1:03d}",
                reason="schedule",
                target="current",
                source_step=step,
                optimizer="clear",
                hash=f"{dice.getrandbits(256):064x}",
            )
        if step % WARN_EVERY == 0:
            yield Intervened(
                step=step,
                detector="kl_spike",
                action="warn",
                reason="the KL to the reference is 9 times what is usual",
                numbers={"reading": 9.0, "threshold": 8.0, "hits": 2, "of_last": 3},
            )
    yield Stopped(step=steps, reason="done")


def _step(step: int, steps: int, dice: random.Random) -> Stepped:
    learnt = 1 - math.exp(-3 * step / steps)
    scores = {name: min(1.0, 0.2 + 0.5 * learnt + dice.gauss(0, 0.06)) for name in DOMAINS}
    generate, learn = dice.gauss(6, 0.5), dice.gauss(3, 0.2)
    easy, hard = int(20 * learnt), int(25 * (1 - learnt))
    rollout_stats = RolloutStats(
        draws=32 + easy + hard,
        accepted=32,
        easy=easy,
        hard=hard,
        errors=0,
        surplus=dice.randrange(20),
        rollouts=16 * (32 + easy + hard),
        sampled_tokens=int(1e5 + 5e4 * learnt),
        score=sum(scores.values()) / len(scores),
        reward=0.4 + 0.2 * learnt + dice.gauss(0, 0.05),
        length=200 + 150 * learnt + dice.gauss(0, 8),
        truncated=abs(dice.gauss(0.01, 0.005)),
        unanswered=abs(dice.gauss(0.02, 0.01)),
        domain_scores=scores,
    )
    update = UpdateStats(
        updates=1,
        skipped=0,
        loss=dice.gauss(0, 1e-3),
        kl=0.001 * (step % RESET_EVERY) * dice.uniform(0.7, 1.3),
        entropy=0.5 - 0.2 * learnt + dice.gauss(0, 0.02),
        grad_norm=0.4 + abs(dice.gauss(0, 0.1)),
        clip_share=abs(dice.gauss(0.01, 0.003)),
        mismatch=abs(dice.gauss(1e-3, 1e-4)),
        mismatch_out_share=0.0,
        tokens=200_000,
        action_tokens=150_000,
    )
    return Stepped(
        step=step,
        cursor=80 * step,
        version=step,
        rollout_stats=rollout_stats,
        update=update,
        learning_rate=1e-6 * min(1.0, step / 20),
        length_weight=0.1 if step % 500 < 100 else 0.0,
        kl_coef=1e-4,
        seconds={
            "generate": generate,
            "learn": learn,
            "sync": 0.2,
            "other": 0.1,
            "total": generate + learn + 0.3,
        },
    )


def _validation(step: int, steps: int, dice: random.Random) -> Validated:
    scores = {name: 0.2 + 0.4 * (1 - math.exp(-3 * step / steps)) + dice.gauss(0, 0.02) for name in DOMAINS}
    mean = sum(scores.values()) / len(scores)
    return Validated(
        step=step, score=mean, domains=scores, pass_at_n=mean + 0.2, unanswered=0.01, seconds=30.0
    )


def _sample(step: int, number: int) -> dict[str, object]:
    return {
        "step": step,
        "draw": 80 * step + number,
        "task": "linear_equation",
        "domain": DOMAINS[number % len(DOMAINS)],
        "level": 1 + number % 3,
        "trained": number % 2 == 0,
        "prompt": f"solve {number % 90 + 3}x-32=-77 x=?",
        "response": f"<think>{'a long thought, and another one; ' * 20}</think><answer>{number}</answer>",
        "score": float(number % 2),
        "status": "ok" if number % 2 else "wrong",
        "note": "",
        "tokens": 200,
        "finish": "stop",
    }


def seconds_to_open(page: Path, opens: int) -> list[tuple[float, float]]:
    """Seconds from asking a browser for the page until all figures on its screen are drawn, each in a new tab.

    All of them, and those in which the page's main thread computed.
    """
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        # the system's, or else Playwright's own
        browser = playwright.chromium.launch(executable_path=which("chromium") or which("google-chrome"))
        for _ in range(opens):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            probe = tab.context.new_cdp_session(tab)
            probe.send("Performance.enable", {"timeDomain": "threadTicks"})
            begin = time.perf_counter()
            tab.goto(page.absolute().as_uri())
            tab.wait_for_function(VISIBLE_DRAWN)
            seconds = time.perf_counter() - begin
            metrics = {one["name"]: one["value"] for one in probe.send("Performance.getMetrics")["metrics"]}
            found.append((seconds, metrics["TaskDuration"]))
            tab.close()
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--records", type=int, default=100_000, help="sample rollouts on disk")
    parser.add_argument("--opens", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="make the run here, and leave it there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "long"
        synthesise(folder, steps=options.steps, records=options.records)
        begin = time.perf_counter()
        path = write_report([folder])
        written = time.perf_counter() - begin
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        opened = seconds_to_open(path, options.opens)
        print(f"| steps | {options.steps:,} |\n|---|---|")
        print(f"| journal | {(folder / JOURNAL).stat().st_size / 1e6:.1f} MB |")
        print(f"| figures | {sum(len(part.figures) for part in sections([read_history(folder)]))} |")
        print(f"| report written in | {written:.2f} s, {memory:.0f} MiB at most |")
        print(f"| report | {path.stat().st_size / 1e6:.1f} MB |")
        seconds, computing = (median(column) for column in zip(*opened, strict=True))
        print(
            f"| opened in | {seconds:.2f} s, {computing:.2f} s of them computing; medians of {len(opened)} |"
        )
        print(f"| load of the machine | {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores |")


if __name__ == "__main__":
    main()
