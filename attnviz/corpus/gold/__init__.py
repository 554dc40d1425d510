"""Heads against gold annotation: dependencies of a treebank, antecedents of pronouns."""
