"""Which heads follow grammar: dependencies of a treebank."""
