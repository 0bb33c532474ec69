"""The web page on which a person decides about made questions; `kbqa questions review` serves it."""

from services.review.app import Labels, create_app

__all__ = ["Labels", "create_app"]
