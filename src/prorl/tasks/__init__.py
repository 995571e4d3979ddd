"""Verifiable problems: the tasks, how they are split, and the mixture that training draws from."""
