"""Where a head's queries and keys come from: a score before softmax, split by source.

``run`` takes one row of scores apart and answers a question about one text, ``measure`` one about
many.
"""
