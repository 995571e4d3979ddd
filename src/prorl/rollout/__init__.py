"""From problems to judged responses to a batch: render, sample, verify, filter, shape."""
