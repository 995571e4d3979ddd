"""Held-out problems, several samples each: validations during a run, the measurement before and after."""
