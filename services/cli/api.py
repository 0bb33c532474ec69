"""Calls to our own services; returns JSON, or raises an error that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NoReturn

import httpx

from kbqa.errors import KbqaError


class ApiError(KbqaError):
    """A service refused a request; the message comes from the service.

    Attributes:
        status: HTTP status; 0 if the service did not answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(detail)


class UnreachableError(ApiError):
    """No service answers at the expected address."""


class Api:
    """A client of one service; sends the key in `KBQA_<NAME>_API_KEY`, if there is one.

    Args:
        name: the service's name in errors.
        option: the option or variable with which the user sets the service's URL, for errors.
        timeout_s: timeout of each call after the connection is established, in seconds.
    """

    def __init__(self, name: str, url: str, option: str, *, timeout_s: float = 30.0) -> None:
        self.name, self.url, self._option = name, url.rstrip("/"), option
        # Use one client for all calls, because creating one takes as long as hundreds of calls. Ignore the
        # environment's proxy settings, because our services are never behind a proxy. The client need not
        # be closed, because it keeps no connections open.
        self._variable = f"KBQA_{name.upper()}_API_KEY"
        key = os.environ.get(self._variable)
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else None,
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
        """The body of a response, in chunks.

        Raises:
            UnreachableError, ApiError: also while the body is read.
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
        says = str(
            detail or f"{method} {self.url}{path} answered {response.status_code}: is this a {self.name}?"
        )
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            says += f"; set {self._variable}"
        raise ApiError(response.status_code, says)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
