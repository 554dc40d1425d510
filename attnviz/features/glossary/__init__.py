"""The terms that attnviz uses, and ``attnviz help``."""
