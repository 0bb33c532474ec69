"""Serving engines: load a policy version with its recipe, and play episodes with it."""
