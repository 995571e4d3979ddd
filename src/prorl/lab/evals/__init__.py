"""Held-out problems, several samples each: exams during a run, the measurement before and after."""
