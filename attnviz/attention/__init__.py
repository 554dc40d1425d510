"""The mathematics of attention: no models, no pictures."""
