"""Circuits read off weights: terminal, tables and the graph by layer."""
