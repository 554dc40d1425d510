"""A page that runs the model itself."""
