"""Adversarial filtration: scores of ten crops, the rule, the exact cascade, the caps.

Source: Hendrycks et al., "Natural Adversarial Examples", CVPR 2021, section 3.
"""
