"""kg_server: knowledge graphs over HTTP, as batches of actions and as SPARQL."""
