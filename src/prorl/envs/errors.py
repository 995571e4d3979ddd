"""The root of every failure that is said to the user in one sentence with the way out."""


class ProrlError(Exception):
    """An expected failure; its text is all that the command line prints of it."""


class UsageError(ProrlError, ValueError):
    """A task, a function or an argument that cannot be used so."""
