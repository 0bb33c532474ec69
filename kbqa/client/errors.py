"""The errors of a gateway's client.

GatewayError
├── GatewayUnreachableError   no answer, or not in time
├── AccessDeniedError         no key, or not a sufficient one   (401, 403)
├── NotThereError             no such graph, subgraph, answer   (404)
├── RequestRefusedError       the request must be changed       (other 4xx)
├── GatewayBusyError          try after `retry_after_s`         (429, 503)
└── GatewayFailedError        a fault of the gateway            (other 5xx, or not a gateway's answer)
"""

from __future__ import annotations

from collections.abc import Mapping

from kbqa.errors import KbqaError


class GatewayError(KbqaError):
    """The base class of these errors; the text says what to do.

    Attributes:
        status: HTTP status; 0 if there was no response.
        kind: of the problem, in kebab case, such as `graph-not-found`; empty if it has none.
        request_id: identifies the request in the gateway's logs; empty if there was no response.
    """

    def __init__(self, detail: str, *, status: int = 0, kind: str = "", request_id: str = "") -> None:
        self.status, self.kind, self.request_id = status, kind, request_id
        super().__init__(detail)


class GatewayUnreachableError(GatewayError):
    """No gateway answers at the address."""


class AccessDeniedError(GatewayError):
    """The gateway requires a key, or a different one."""


class NotThereError(GatewayError):
    """There is no such graph, subgraph or answer."""


class RequestRefusedError(GatewayError):
    """The request cannot be answered as it is."""


class GatewayBusyError(GatewayError):
    """The gateway is overloaded, or a part of the system is not ready yet.

    Attributes:
        retry_after_s: seconds after which to try again; None if the gateway does not say.
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
    """The gateway failed, or the server is not a gateway."""


def error_of(status: int, detail: str, kind: str, headers: Mapping[str, str]) -> GatewayError:
    """The error of a problem document.

    Args:
        headers: of the response, with names in lower case.
    """
    request_id = headers.get("x-request-id", "")
    if status in (429, 503):
        wait = headers.get("retry-after", "")
        wait_s = float(wait) if wait.isdigit() else None
        return GatewayBusyError(detail, status=status, kind=kind, request_id=request_id, retry_after_s=wait_s)
    classes = {401: AccessDeniedError, 403: AccessDeniedError, 404: NotThereError}
    fallback = RequestRefusedError if 400 <= status < 500 else GatewayFailedError
    return classes.get(status, fallback)(detail, status=status, kind=kind, request_id=request_id)
