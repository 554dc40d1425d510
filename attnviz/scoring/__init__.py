"""What a head does: scores, roles, selections."""
