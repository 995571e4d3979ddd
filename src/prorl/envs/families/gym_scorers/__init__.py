"""Own scorers for reasoning-gym tasks whose library scorer executes answers, is wrong, or is only equality.

Each is a function of what the task keeps of an entry and of the answer; none evaluates text as code, imports the
library, or does work that is not bounded by the answer's 4 000 characters.
"""
