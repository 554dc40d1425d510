"""What every head does over a corpus: sums of many texts, with intervals, examples and likeness."""
