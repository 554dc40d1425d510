"""Public reports rebuilt as tiny cases, one line each: address, case, what holds."""
