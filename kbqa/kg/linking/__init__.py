"""Entity linking: finding the entities that a question names."""
