"""Logical forms: one algebra; S-expressions, action sequences and SPARQL in and out."""
