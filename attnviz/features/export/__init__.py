"""Batches of pictures into a folder: fast, complete, and safe to interrupt (docs/export.md)."""
