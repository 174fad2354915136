"""Signals to measures: means by group, the history of a run, transfer and forgetting, early warning."""
