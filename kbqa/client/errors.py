"""What goes wrong between a client and the gateway.

GatewayError
├── GatewayUnreachableError   nothing answers there, or not in time
├── AccessDeniedError         no key, or none for this          (401, 403)
├── NotThereError             graph, subgraph or answer         (404)
├── RequestRefusedError       as it is, never                   (other 4xx)
├── GatewayBusyError          later: `retry_after_s`            (429, 503)
└── GatewayFailedError        a fault of the gateway            (other 5xx, or no answer of one)
"""

from __future__ import annotations

from collections.abc import Mapping

from kbqa.errors import KbqaError


class GatewayError(KbqaError):
    """Root of them; the text is the gateway's own, and says what to do.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        kind: of the problem, in kebab case: `graph-not-found`; empty where it has none.
        request_id: to look for in the gateway's logs; empty where there was no answer.
    """

    def __init__(self, detail: str, *, status: int = 0, kind: str = "", request_id: str = "") -> None:
        self.status, self.kind, self.request_id = status, kind, request_id
        super().__init__(detail)


class GatewayUnreachableError(GatewayError):
    """No gateway answers at the address."""


class AccessDeniedError(GatewayError):
    """The gateway wants a key, or another one."""


class NotThereError(GatewayError):
    """No such graph, subgraph or answer."""


class RequestRefusedError(GatewayError):
    """The request cannot be answered as it is."""


class GatewayBusyError(GatewayError):
    """Too much is asked, or a part of the system is not there yet.

    Attributes:
        retry_after_s: after which to try again; None if the gateway does not say.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int = 0,
        kind: str = "",
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail, status=status, kind=kind, request_id=request_id)


class GatewayFailedError(GatewayError):
    """A fault of the gateway, or no gateway at all."""


def error_of(status: int, detail: str, kind: str, headers: Mapping[str, str]) -> GatewayError:
    """The error of a problem document.

    Args:
        headers: of the answer, their names in lower case.
    """
    request_id = headers.get("x-request-id", "")
    if status in (429, 503):
        wait = headers.get("retry-after", "")
        wait_s = float(wait) if wait.isdigit() else None
        return GatewayBusyError(detail, status=status, kind=kind, request_id=request_id, retry_after_s=wait_s)
    classes = {401: AccessDeniedError, 403: AccessDeniedError, 404: NotThereError}
    fallback = RequestRefusedError if 400 <= status < 500 else GatewayFailedError
    return classes.get(status, fallback)(detail, status=status, kind=kind, request_id=request_id)
