"""Attention on paper: shapes, costs and small worked examples. No torch, except to verify."""
