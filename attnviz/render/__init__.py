"""Records in, pictures out."""
