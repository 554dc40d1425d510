"""Tests of attnviz.spans."""
