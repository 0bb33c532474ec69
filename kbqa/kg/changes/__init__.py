"""Changes of a loaded graph: how they are written, and what they do to it."""
