"""The reason for which only the gateway refuses a request, and the HTTP status of every refusal."""

from __future__ import annotations

from kbqa.errors import KbqaError
from services.access.errors import ACCESS_STATUS, AccessError


class QuotaExceededError(AccessError):
    """The caller asks more questions than its quota allows."""

    def __init__(self, quota: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"more questions than {quota}: ask again in {retry_after_s:.0f} s")


GATEWAY_ACCESS_STATUS: dict[type[KbqaError], int] = {
    **ACCESS_STATUS,
    QuotaExceededError: 429,
}
