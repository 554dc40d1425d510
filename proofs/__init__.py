"""What is claimed of the statistics, measured: run with ``python -m proofs.NAME``."""
