"""Who looks at whom, as a picture."""
