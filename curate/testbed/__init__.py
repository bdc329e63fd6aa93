"""Evaluation: predictions of models, what they amount to, and tables of it."""
