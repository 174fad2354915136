"""Texts and causal language models: what a model makes of every token, by domain and by kind of token."""
