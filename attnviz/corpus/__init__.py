"""Many texts: read one by one, put into batches by length, worked on by one process or several."""
