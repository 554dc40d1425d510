"""What single heads do over a corpus, row by row: sampled fairly, and added up."""
