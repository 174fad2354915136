"""Many runs: planned from a recipe, carried out by an engine."""
