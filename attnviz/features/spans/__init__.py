"""How much every head attends to named parts of a text."""
