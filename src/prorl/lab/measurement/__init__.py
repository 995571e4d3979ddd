"""Measuring models: base and trained around a run, and studies of any checkpoint or model."""
