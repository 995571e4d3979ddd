"""A trained model as others use it: a transformers checkpoint with a model card."""
