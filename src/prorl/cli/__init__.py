"""The command line: `main` has the commands about runs, the other files those about tasks, data and the machine."""

from prorl.cli.main import app, main

__all__ = ["app", "main"]
