"""The training loop: one run, from its config to a finished folder, on one device or several."""
