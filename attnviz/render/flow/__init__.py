"""What reaches every position from every token, as text, figures, a page and tables."""
