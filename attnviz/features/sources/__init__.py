"""Where a head's queries and keys come from: a score before softmax, split by source.

``split`` takes one row of scores apart; ``run`` answers a question about one text.
"""
