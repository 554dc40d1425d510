"""Retrieval heads: which heads copy a needle from a long text, and what is lost without them."""
