"""What heads write to the residual stream, and what that is worth in words.

``split`` takes a logit apart; ``run`` answers a question about one text.
"""
