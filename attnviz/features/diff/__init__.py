"""Two runs side by side: captures row by row, reports figure by figure."""
