"""What signals can steer: the weight of a row in the loss, and which classes are replayed."""
