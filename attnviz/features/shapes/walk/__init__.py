"""Every step from X to Y, why it is there, and the real layer beside it."""
