"""What a request says of its sender: the key that it presents, and the address that it comes from."""

from __future__ import annotations

import ipaddress
from typing import Any

from starlette.datastructures import Headers


def presented_key(headers: Headers) -> bytes:
    """The API key of a request, empty if it has none.

    It stands in `Authorization: Bearer KEY` or, where there is no such header, in `X-API-Key`.
    """
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    key = credentials if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return key.strip().encode("latin-1")


def address_of(client: Any) -> str:
    """A client's address, as limits count it: of IPv6 the network, of which a host has as many as it wants.

    Args:
        client: (host, port), as ASGI has it; None where it is not known.
    """
    host = str(client[0]) if client else "unknown"
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
    except ValueError:
        return host
