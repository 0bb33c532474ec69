"""The embedded store: Oxigraph for SPARQL, a mapped index for look-ups."""
