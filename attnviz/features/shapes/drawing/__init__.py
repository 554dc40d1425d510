"""Shapes and costs as text, figures, diagrams and animations."""
