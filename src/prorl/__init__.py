"""ProRL v2: prolonged reinforcement learning of language models with verifiable rewards."""

__version__ = "0.1.0"
