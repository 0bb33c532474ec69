"""Serves a page and the files that it loads, all from our packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse, Response

_SHARED = Path(str(files(__package__) / "static"))
_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
HEADERS = {
    # Pages show texts of models and graphs. Even if such a text became markup, it could do nothing.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of every file; the gateway uses the same policy for its other responses."""


def site_router(static: Path, pages: Mapping[str, str]) -> APIRouter:
    """Routes that serve a page's files and, also under `/static/`, the files that all pages share.

    Args:
        static: directory of the page's own files.
        pages: URL path → file in `static`. A path may contain `{parameters}`, which the page's script reads.
    """
    router = APIRouter(include_in_schema=False)
    assets = {
        path.name: path
        for directory in (_SHARED, static)
        for path in directory.iterdir()
        if path.suffix in _TYPES
    }

    def page(file: Path) -> Callable[[], Response]:
        return lambda: FileResponse(file, media_type="text/html", headers=HEADERS)

    for address, name in pages.items():
        router.get(address)(page(static / name))

    @router.get("/static/{name}")
    def asset(name: str) -> Response:
        if name not in assets:
            raise HTTPException(404, f"no file {name!r}")
        path = assets[name]
        return FileResponse(path, media_type=_TYPES[path.suffix], headers=HEADERS)

    return router
