"""Why somebody is not let in, and which HTTP status that has."""

from __future__ import annotations

from datetime import datetime

from kbqa.errors import KbqaError

_HOW = "send a key of this gateway as Authorization: Bearer KEY; its operator makes one: kbqa keys create"


class AccessError(KbqaError):
    """Root of everything that access control refuses."""


class KeyRequiredError(AccessError):
    """No key, or one that this gateway does not know."""

    def __init__(self) -> None:
        super().__init__(_HOW)


class KeyExpiredError(AccessError):
    """The key was good once."""

    def __init__(self, name: str, expired: datetime) -> None:
        super().__init__(f'the key "{name}" expired on {expired:%Y-%m-%d %H:%M} UTC: {_HOW}')


class KeyRevokedError(AccessError):
    """The key was taken back."""

    def __init__(self, name: str) -> None:
        super().__init__(f'the key "{name}" was revoked: {_HOW}')


class CrossSiteError(AccessError):
    """A browser sends the password that it keeps, at the behest of another site."""

    def __init__(self) -> None:
        super().__init__(
            "this request comes from a page of another site: list its origin in KBQA_GATEWAY_CORS_ORIGINS, "
            "and have it send a key as Authorization: Bearer KEY"
        )


class GraphForbiddenError(AccessError):
    """The key is not for this graph; says nothing of whether there is one."""

    def __init__(self, kg: str, graphs: frozenset[str]) -> None:
        theirs = ", ".join(sorted(graphs))
        super().__init__(f'this key may ask about {theirs}, not about "{kg}": use a key for that graph')


class RateExceededError(AccessError):
    """More requests than the key may send in a while."""

    def __init__(self, rate: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"more requests than {rate}: try again in {retry_after_s:.0f} s")


class QuotaExceededError(AccessError):
    """More questions than the key may ask in a while."""

    def __init__(self, quota: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"more questions than {quota}: ask again in {retry_after_s:.0f} s")


class CountsUnavailableError(AccessError):
    """Redis, which counts, does not answer, and the gateway is set to refuse then."""

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
    CrossSiteError: 403,
    GraphForbiddenError: 403,
    RateExceededError: 429,
    QuotaExceededError: 429,
    CountsUnavailableError: 503,
}
