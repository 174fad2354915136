"""What signals can steer: the weight of a row in the loss, which classes are replayed, what is added to the logits."""
