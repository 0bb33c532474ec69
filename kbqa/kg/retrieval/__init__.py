"""The retrieval actions: a module for each, or for those that share their means."""
