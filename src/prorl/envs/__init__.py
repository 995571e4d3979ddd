"""Verifiable problems in five domains: generated, split by prompt, verified by definition."""
