"""Ranks relations and types by similarity to a text; RRCG decides what is similar enough."""
