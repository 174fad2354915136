"""Saved predictions: reading files of logits or probabilities, scoring them, comparing two of them."""
