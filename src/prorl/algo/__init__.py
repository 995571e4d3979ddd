"""The ideas of the method, one per file: pure functions of numbers, importing nothing from prorl."""
