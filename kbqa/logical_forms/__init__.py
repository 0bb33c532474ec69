"""Logical forms: one algebra, with conversions from and to S-expressions, action sequences and SPARQL."""
