"""Differences of two runs: terminal, tables, figure."""
