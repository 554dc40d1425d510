"""Attention sinks: where every head's attention rests, what it hands on, and what removal costs."""
