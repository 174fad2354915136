"""The lab: configs, recipes, the training loop, checkpoints and run folders."""
