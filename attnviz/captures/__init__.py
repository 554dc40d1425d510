"""A look in (a text, a prompt, arrays, modules at work), captures out."""
