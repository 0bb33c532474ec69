"""SPARQL as text and as processes: what may run, what it means, and where it can be killed."""
