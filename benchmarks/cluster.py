"""What a sync of the cluster backend costs at three sizes: collect, send, install and probe, one rank, one engine.

.venv-cluster/bin/python benchmarks/cluster.py
"""

import statistics
import tempfile
import time
from pathlib import Path

from prorl.build import build_session
from prorl.config.recipe import check
from prorl.config.schema import ShapeConfig
from prorl.learn.base_model import build_model, train_tokenizer

SIZES = ((128, 4), (512, 5), (1024, 6))  # hidden size, layers
SYNCS = 6  # the first waits for the engine to start


def write_model(folder: Path, hidden: int, layers: int) -> int:
    """A random Qwen3 and its tokenizer; returns the number of its parameters."""
    tokenizer = train_tokenizer(["Say 1 + 2 between the tags."] * 4, 300)
    shape = ShapeConfig(
        architecture="qwen3",
        hidden_size=hidden,
        layers=layers,
        heads=hidden // 64,
        kv_heads=hidden // 128,
        intermediate_size=3 * hidden,
        context=192,
    )
    model = build_model(shape, len(tokenizer), seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.num_parameters()


def seconds_of_a_sync(model: Path) -> float:
    """The median of all but the first."""
    config = check(
        {
            "name": "sync",
            "model": {"path": str(model)},
            "tasks": {"arithmetic": {}},
            "backend": "ray",
            "device": "cpu",
            "threads": 1,
            "cluster": {"cache_gib": 0.0625},
            "sampling": {"response_limit": 16},
        },
        "benchmark",
    )
    backend = build_session(config, model, with_reference=False).backend
    taken = []
    try:
        for version in range(SYNCS):
            begun = time.perf_counter()
            backend.sync(version)
            taken.append(time.perf_counter() - begun)
    finally:
        backend.close()
    return statistics.median(taken[1:])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for hidden, layers in SIZES:
            model = Path(folder) / str(hidden)
            parameters = write_model(model, hidden, layers)
            print(
                f"{parameters / 1e6:6.2f} M parameters: {seconds_of_a_sync(model):.3f} s a sync", flush=True
            )


if __name__ == "__main__":
    main()
