"""Estimates over many texts and their intervals, from sums that add up in any order. No models."""
