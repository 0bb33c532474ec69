"""Entities that a question names."""
