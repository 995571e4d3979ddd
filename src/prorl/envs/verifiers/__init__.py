"""Verifiers that several tasks share: each says how far a text solves a problem, and trusts no text."""
