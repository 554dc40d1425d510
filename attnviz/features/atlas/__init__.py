"""Everything known about every head of a model, on one page."""
