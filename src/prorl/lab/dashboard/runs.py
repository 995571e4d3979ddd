"""Which runs there are. A name that came over the network is looked up here and never becomes a path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from prorl.run.layout import CONFIG, runs_below


def find_runs(root: Path) -> Mapping[str, Path]:
    """Run directories by name: those in `root` and in its folders (`group/name`), or `root` itself if it is one.

    A link that leads out of `root` is no run of it.
    """
    if os.path.exists(root / CONFIG):
        return {root.resolve().name: root}
    # os.path.exists, unlike Path.exists, says no where somebody else's folder may not be looked into.
    groups = sorted(path for path in root.glob("*/") if not os.path.exists(path / CONFIG))
    found = [*runs_below(root), *(run for group in groups for run in runs_below(group))]
    inside = root.resolve()
    return {run.relative_to(root).as_posix(): run for run in found if run.resolve().is_relative_to(inside)}
