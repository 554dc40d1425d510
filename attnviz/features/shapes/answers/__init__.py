"""The views of shapes and costs: each a function with one answer."""
