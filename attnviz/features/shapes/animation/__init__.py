"""Multi-head attention as an animation, from real numbers."""
