"""The trainer's web page: how runs go, and what their rollouts said; and the routes that it reads."""

from services.trainer.page.groups import groups_router
from services.trainer.page.site import site_router

__all__ = ["groups_router", "site_router"]
