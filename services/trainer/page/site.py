"""`/`, `/runs/{id}` and what they load: files of this package, nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse, Response

_STATIC = Path(str(files(__package__) / "static"))
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS = {
    # Text of models and graphs is shown here: even if it became markup, it could do nothing.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def site_router() -> APIRouter:
    """The page, the same for every address: its script reads the address."""
    router = APIRouter(include_in_schema=False)
    assets = {path.name: path for path in _STATIC.iterdir() if path.suffix in _TYPES}

    @router.get("/")
    @router.get("/runs/{run}")
    def page(run: str = "") -> Response:
        return FileResponse(_STATIC / "index.html", media_type="text/html", headers=_HEADERS)

    @router.get("/static/{name}")
    def asset(name: str) -> Response:
        if name not in assets:
            raise HTTPException(404, f"no file {name!r}")
        path = assets[name]
        return FileResponse(path, media_type=_TYPES[path.suffix], headers=_HEADERS)

    return router
