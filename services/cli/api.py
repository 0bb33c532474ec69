"""Calls to our own services: JSON back, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import httpx

from kbqa.errors import KbqaError


class ApiError(KbqaError):
    """A service refused a request; the text is its own.

    Attributes:
        status: HTTP status, 0 when there was no answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(detail)


class UnreachableError(ApiError):
    """Nothing answers where a service was expected."""


class Api:
    """One service.

    Args:
        name: what it is called in errors.
        option: how the user names another address.
        timeout_s: for each call, once connected.
    """

    def __init__(self, name: str, url: str, option: str, *, timeout_s: float = 30.0) -> None:
        self.name, self.url, self._option = name, url.rstrip("/"), option
        # One client for all calls, since making one costs as much as hundreds of calls. Our own
        # services are never behind the proxy that the environment may name.
        # It keeps no connection, so there is nothing to close.
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=3.0),
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )

    def get(self, path: str) -> Any:
        """Raises: UnreachableError, ApiError."""
        return self._call("GET", path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Raises: UnreachableError, ApiError."""
        return self._call("POST", path, body)

    def stream(self, path: str) -> Iterator[bytes]:
        """The body of a page, piece by piece.

        Raises:
            UnreachableError, ApiError: also while it is read.
        """
        with self._translated(), self._client.stream("GET", f"{self.url}{path}") as response:
            if not response.is_success:
                response.read()
                self._raise(response, "GET", path)
            yield from response.iter_bytes()

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        with self._translated():
            response = self._client.request(method, f"{self.url}{path}", json=body)
        content = _json(response)
        if response.is_success and content is not None:
            return content
        return self._raise(response, method, path)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise UnreachableError(0, f"the {self.name} at {self.url} did not answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(
                0,
                f"no {self.name} answers at {self.url} ({error}): start everything with kbqa up, "
                f"or give its URL with {self._option}",
            ) from error

    def _raise(self, response: httpx.Response, method: str, path: str) -> NoReturn:
        content = _json(response)
        detail = content.get("detail") if isinstance(content, dict) else None
        raise ApiError(
            response.status_code,
            str(
                detail or f"{method} {self.url}{path} answered {response.status_code}: is this a {self.name}?"
            ),
        )


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
