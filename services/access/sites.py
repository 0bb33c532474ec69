"""Refuses requests that pages of other sites cause in a browser on this machine or network.

A page can make its own host name resolve to our address (DNS rebinding) and then read every response: the
browser takes both for the same site. Such a request has the page's name as its Host. Without rebinding, a
page can still send requests that change something, without reading the responses; browsers mark them by
`Sec-Fetch-Site` and `Origin`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.access.errors import ACCESS_STATUS, AccessError, CrossSiteError, ForeignHostError
from services.access.guard import OPEN_PATHS
from services.http import domain_response

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""


class OwnSite:
    """ASGI middleware that refuses foreign names in Host, and changes on behalf of other sites' pages.

    Args:
        hosts: names that are accepted besides localhost and IP addresses; None accepts every Host, for a
            service that requires keys, which a page of another site does not have.
        origins: hosts of pages that may change something, besides the host that the request is sent to.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None, origins: Collection[str] = ()) -> None:
        self._app, self._hosts, self._origins = app, hosts, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                self._check(Headers(scope=scope), scope["method"])
            except AccessError as error:
                await domain_response(error, ACCESS_STATUS)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, method: str) -> None:
        name = _name(headers.get("host", ""))
        if self._hosts is not None and not is_own(name, self._hosts):
            raise ForeignHostError(name)
        if method not in READING and from_another_site(headers, self._origins):
            raise CrossSiteError


def is_own(name: str, hosts: Collection[str]) -> bool:
    """Whether the name in a Host header is in `hosts`, localhost, or an address, which cannot be rebound."""
    return name in hosts or "*" in hosts or name == "localhost" or _address(name) is not None


def from_another_site(headers: Headers, origins: Collection[str] = ()) -> bool:
    """Whether a page of another site caused this request.

    Args:
        origins: hosts whose pages count as this site.
    """
    origin = headers.get("origin")
    if origin is not None and _name(origin.partition("://")[2]) in origins:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    return origin is not None and origin.partition("://")[2] != headers.get("host", "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # a bracket without its counterpart
        return ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
