"""``attnviz show``: what attnviz wrote before, printed again."""
