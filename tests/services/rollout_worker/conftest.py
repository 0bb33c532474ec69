"""Policies that know nothing, and requests for them."""

from tests.published import make_request, publish, questions, recipe, store

__all__ = ["make_request", "publish", "questions", "recipe", "store"]
