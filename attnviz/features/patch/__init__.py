"""Activation patching: one run's values in another, to see which heads carry the answer.

Denoising puts values of the clean run into the corrupted one (what restores the answer), noising
values of the corrupted run into the clean one (what breaks it): Vig et al. 2020 (arXiv:2004.12265),
Meng et al. 2022 (arXiv:2202.05262), Zhang & Nanda 2023 (arXiv:2309.16042).
"""
