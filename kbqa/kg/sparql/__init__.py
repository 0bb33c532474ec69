"""SPARQL: checks and rewrites queries, and runs them in processes that can be killed."""
