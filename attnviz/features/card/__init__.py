"""A block for a model card: what the model's heads do, and how that was measured."""
