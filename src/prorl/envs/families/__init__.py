"""The compact families, one domain per file."""
