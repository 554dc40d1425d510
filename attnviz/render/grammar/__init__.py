"""Heads against gold annotation, drawn: tables, grids, arcs over sentences."""
