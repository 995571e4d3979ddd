"""Programs for tests of the sandbox, as texts beside this file."""

import json
import re
from pathlib import Path


def programs(file):
    """By section and name, each program's source and the values beside its name.

    A section begins with `=== its name`, a program with `== its name` or `== its name | its values as a JSON list`.
    """
    found = {}
    for section in re.split("^=== ", Path(__file__).with_name(file).read_text(), flags=re.MULTILINE)[1:]:
        title, *entries = re.split("^== ", section, flags=re.MULTILINE)
        rows = found[title.strip()] = {}
        for head, _, source in (entry.partition("\n") for entry in entries):
            name, _, values = head.partition(" | ")
            source = source.strip("\n")
            rows[name] = (source and f"{source}\n", *json.loads(values or "[]"))
    return found
