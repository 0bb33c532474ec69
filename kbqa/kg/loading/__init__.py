"""Loads files into versions of graphs."""
