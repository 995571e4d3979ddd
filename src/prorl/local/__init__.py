"""One process: a CPU or one GPU, engine and learner on the same weights."""
