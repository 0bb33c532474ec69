"""Texts compared with relations and types; RRCG, which decides what is close enough."""
