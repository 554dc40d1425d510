"""Flow: what reaches every position from every token, through all layers and residual paths."""
