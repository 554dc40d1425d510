"""The page of a long text: maps as tiles, finer ones from the largest weights of every row."""
