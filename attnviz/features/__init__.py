"""One folder a feature: its result, what computes it, its pictures, its function, its command."""
