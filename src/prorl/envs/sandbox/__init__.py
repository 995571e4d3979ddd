"""Runs programs that nobody trusts: the model's code, and data that can only be read by executing something."""
