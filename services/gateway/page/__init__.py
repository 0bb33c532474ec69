"""The gateway's web pages: one to ask questions and watch the answers, one for the reports of runs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter

from services.gateway.page.reports import Reports, reports_router
from services.page.site import site_router
from services.page.trajectories import trajectories_router

_STATIC = Path(str(files(__package__) / "static"))
_PAGES = {"/": "index.html", "/reports": "reports.html", "/runs/{run}": "reports.html"}


def page_router() -> APIRouter:
    """The pages' static files, which contain no data and need no protection by a key."""
    return site_router(_STATIC, _PAGES)


def records_router(home: Path) -> APIRouter:
    """The data that the page of reports shows, from the runs under `home`."""
    reports = Reports(home / "runs")
    router = APIRouter()
    router.include_router(reports_router(reports))
    router.include_router(trajectories_router(reports.traces))
    return router
