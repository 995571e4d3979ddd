"""A run as people see it while it goes on: terminal, plain lines, TensorBoard."""
