"""What every head does with a text: scores, roles, the grid."""
