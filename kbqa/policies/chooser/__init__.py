"""A policy that chooses among what the graph lists: what it reads, the model, its engine."""
