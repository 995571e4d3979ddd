"""`prorl data`: the data sets of a recipe, fetched and cleaned once so that training needs no hub."""

from __future__ import annotations

from typing import Annotated

import typer

from prorl.cli.outcome import finish

app = typer.Typer(
    help="Prepare the data sets that a recipe names.", no_args_is_help=True, rich_markup_mode="markdown"
)


@app.callback()
def _data() -> None:
    """Prepare the data sets that a recipe names."""


@app.command(
    epilog="Examples: `prorl data prepare prorl_v2` · "
    "`prorl data prepare prorl_v2 tasks.deepscaler.path=deepscaler.parquet`"
)
def prepare(
    recipe: Annotated[str, typer.Argument(help="A recipe by name or a YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the recipe, as in tasks.deepscaler.limit=1000.")
    ] = None,
) -> None:
    """Read every data set of a recipe from the hub or a local file, clean it, and store it as Parquet.

    What is prepared already and unchanged is not done again. Says what was kept and what was dropped, and why.
    """

    def work() -> None:
        from prorl.config.recipe import load_recipe
        from prorl.data import data_folder, data_requests, sandbox_policy
        from prorl.envs.datasets.prepare import prepare as prepare_data
        from prorl.envs.verifiers.programs import OwnSandbox
        from prorl.lab.watch.console import Console

        config = load_recipe(recipe, overrides or ())
        requests, folder, console = data_requests(config), data_folder(config), Console()
        if not requests:
            console.say(f"{recipe} names no data sets: its tasks are all procedural")
            return
        with console.counting("preparing") as progress:
            report = prepare_data(requests, folder, progress, run=OwnSandbox(sandbox_policy(config)))
        for line in report.lines():
            console.say(line)
        console.say(f"prepared in {folder}")

    finish(work)
