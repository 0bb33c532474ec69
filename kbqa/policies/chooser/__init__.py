"""A policy that chooses among the options that the graph lists: its input, its model, its engine."""
