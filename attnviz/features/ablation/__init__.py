"""What taking heads away changes: every head alone, groups, curves, and gradients beside them.

A gate ξ multiplies what a head passes to W_O. Zero ablation closes it; mean and resample ablation
put something else in the head's place (Michel et al. 2019, arXiv:1905.10650; Wang et al. 2022,
arXiv:2211.00593). The effect is how much a metric changes on the same texts.
"""
