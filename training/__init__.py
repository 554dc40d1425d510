"""Training of the two bundled demo models (not part of the installed package).

``python -m training.gpt2`` and ``python -m training.bert`` train a small causal and a
small masked language model from a folder of plain text; ``python -m training.evaluate``
prints the figures of a trained folder on held-out books.
"""
