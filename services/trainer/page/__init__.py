"""The trainer's web page, which shows runs and their trajectories, and the routes behind it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter

from kbqa.policy_store import PolicyStore
from kbqa.runs.directory import Runs
from services.page.site import site_router
from services.page.trajectories import trajectories_router
from services.trainer.page.records import records_router

_STATIC = Path(str(files(__package__) / "static"))
_PAGES = {"/": "index.html", "/runs/{run}": "index.html"}


def page_router(runs: Runs, store: PolicyStore) -> APIRouter:
    """The page and its routes; the page is the same at every address, and its script reads the address."""
    router = APIRouter()
    router.include_router(records_router(runs, store))
    router.include_router(trajectories_router(lambda run: runs.get(run).traces()))
    router.include_router(site_router(_STATIC, _PAGES))
    return router
