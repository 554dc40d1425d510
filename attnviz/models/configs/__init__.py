"""From a config.json or a published model to the attention in its layers."""
