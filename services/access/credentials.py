"""Credentials of a request: the API key that it presents, and the address that it comes from."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from typing import Any

from starlette.datastructures import Headers


def presented_key(headers: Headers) -> bytes:
    """The API key of a request; empty if it has none.

    It is sent as `Authorization: Bearer KEY` or, without that header, as `X-API-Key`.
    """
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    key = credentials if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return key.strip().encode("latin-1")


def password_of(headers: Headers) -> bytes | None:
    """The password of Basic authentication, which a browser sends by itself; None if the request has none."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def address_of(client: Any) -> str:
    """The address by which limits count a client; for IPv6 its /64 network, all of which one host may use.

    Args:
        client: (host, port), as in the ASGI scope; None if unknown.
    """
    host = str(client[0]) if client else "unknown"
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
    except ValueError:
        return host
