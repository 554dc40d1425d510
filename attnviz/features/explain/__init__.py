"""Why the model said that: what other commands measure, on one text, in one place."""
