"""Knowledge graphs: stores, loading, entity linking, and the actions of agents."""
