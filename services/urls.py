"""URLs of brokers, which may name several hosts, and without their passwords."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_AUTHORITY = re.compile(r"(?<=://)[^/?#]*")
_PASSWORD_OPTION = re.compile(r"(\b\w*password=)[^&]*")


def split_url(url: str) -> SplitResult:
    """The parts of a URL, whose `netloc` may name several hosts.

    `urlsplit` takes one: in newer versions of Python it refuses `a,[::1]`, since nothing may stand before a
    bracket.
    """
    named = _AUTHORITY.search(url)
    parts = urlsplit(_AUTHORITY.sub("", url, count=1))
    return parts if named is None else parts._replace(netloc=named.group())


def without_password(url: str) -> str:
    """A URL as it may be shown: neither with a password before the host nor with one among the options."""
    parts = split_url(url)
    shown = parts._replace(query=_PASSWORD_OPTION.sub(r"\1***", parts.query))
    if parts.password is not None:
        host = parts.netloc.rpartition("@")[2]
        shown = shown._replace(netloc=f"{parts.username or ''}:***@{host}")
    return shown.geturl()
