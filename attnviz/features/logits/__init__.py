"""What heads write to the residual stream, and what that is worth in words.

``function`` takes a logit apart, and answers a question about one text.
"""
