"""The embedded store: Oxigraph for SPARQL, and a memory-mapped index for look-ups."""
