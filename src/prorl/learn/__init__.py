"""Everything that owns tensors: models, tokenizer training, warm-up, log-probs, updates."""
