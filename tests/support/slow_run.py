"""A real training on the fake backend as a process of its own, slow enough to be watched and steered.

Usage: python slow_run.py FOLDER SECONDS_PER_STEP STEPS
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from prorl.config.recipe import to_json
from prorl.control.events import Started, Stepped
from prorl.envs.files import encode_json, write_atomic
from prorl.run.layout import CONFIG
from support.defaults import planned
from support.fake_runs import PLAN, run_in
from support.recipes import recipe


def main(folder: Path, seconds: float, steps: int) -> None:
    config = recipe(tasks={"arithmetic": {}, "word_list": {}}, validation={"every": 4}, steps=steps)

    def watch(event, state) -> None:
        if isinstance(event, Started):  # a fake run has no recipe of its own; who gives commands asks for one
            write_atomic(folder / CONFIG, encode_json(to_json(config)))
        if isinstance(event, Stepped):
            time.sleep(seconds)

    run_in(folder, planned(PLAN, steps=steps), watch=watch, config=config)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
