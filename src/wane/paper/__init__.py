"""What is about one paper: its values, its claims, the questions it leaves open, and `wane reproduce`."""
