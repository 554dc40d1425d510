"""What attention costs: closed forms, kinds side by side, growth along one size."""
