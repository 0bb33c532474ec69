"""Serving engines: from a policy version and its recipe to what plays episodes with it."""
