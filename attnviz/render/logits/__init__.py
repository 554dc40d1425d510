"""A logit and the parts that add up to it: terminal, tables, figure."""
