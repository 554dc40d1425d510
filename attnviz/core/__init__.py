"""Values and seams that everything shares: tokens, heads, captures, sources, results. No models."""
