"""One row of logits to the signals: the registry of signals, the kernels, and what they accept as input."""
