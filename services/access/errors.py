"""Reasons for refusing a request, and the HTTP status of each."""

from __future__ import annotations

from datetime import datetime

from kbqa.errors import KbqaError

_HOW = "send a key as Authorization: Bearer KEY; the operator of this service creates one: kbqa keys create"


class AccessError(KbqaError):
    """Root of the errors of access control."""


class KeyRequiredError(AccessError):
    """The request has no key, or an unknown one."""

    def __init__(self) -> None:
        super().__init__(_HOW)


class KeyExpiredError(AccessError):
    """The key has expired."""

    def __init__(self, name: str, expired: datetime) -> None:
        super().__init__(f'the key "{name}" expired on {expired:%Y-%m-%d %H:%M} UTC: {_HOW}')


class KeyRevokedError(AccessError):
    """The key was revoked."""

    def __init__(self, name: str) -> None:
        super().__init__(f'the key "{name}" was revoked: {_HOW}')


class ForeignHostError(AccessError):
    """The Host of a request is not a name of this service."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'this service is not known by the name "{name}": call it by its IP address or as localhost, or '
            "list the name in its ALLOWED_HOSTS (such as KBQA_TRAINER_ALLOWED_HOSTS)"
        )


class CrossSiteError(AccessError):
    """A page of another site caused a browser to send this request."""

    def __init__(self) -> None:
        super().__init__(
            "this request comes from a page of another site: let its own page send it, or list the "
            "other site's host in KBQA_TRAINER_ALLOWED_HOSTS (at the gateway: its origin in "
            "KBQA_GATEWAY_CORS_ORIGINS, and have it send a key as Authorization: Bearer KEY)"
        )


class GraphForbiddenError(AccessError):
    """The key is restricted to other graphs. The message does not tell whether the graph exists."""

    def __init__(self, kg: str, graphs: frozenset[str]) -> None:
        theirs = ", ".join(sorted(graphs))
        super().__init__(f'this key may ask about {theirs}, not about "{kg}": use a key for that graph')


class ChangesForbiddenError(AccessError):
    """The key may read graphs, but not change them."""

    def __init__(self) -> None:
        super().__init__(
            "this key may not change graphs: use one that the operator of this service created with "
            "kbqa keys create NAME --file FILE --changes"
        )


class RateExceededError(AccessError):
    """The caller sends more requests than its rate limit allows."""

    def __init__(self, rate: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"more requests than {rate}: try again in {retry_after_s:.0f} s")


class CountsUnavailableError(AccessError):
    """Redis does not answer, and the settings forbid counting requests without it."""

    retry_after_s = 5.0

    def __init__(self) -> None:
        super().__init__(
            "requests cannot be counted now, as Redis does not answer: try again later "
            "(KBQA_GATEWAY_COUNTS_WITHOUT_REDIS=local lets the gateway count by itself)"
        )


ACCESS_STATUS: dict[type[KbqaError], int] = {
    KeyRequiredError: 401,
    KeyExpiredError: 401,
    KeyRevokedError: 401,
    ForeignHostError: 421,
    CrossSiteError: 403,
    GraphForbiddenError: 403,
    ChangesForbiddenError: 403,
    RateExceededError: 429,
    CountsUnavailableError: 503,
}
