"""What is fast, measured as ratios within one run. `make bench` runs them all; each also runs by itself."""
