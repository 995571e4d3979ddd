"""The project's own procedural tasks, one file per domain."""
