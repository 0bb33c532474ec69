"""SPARQL servers for tests: a small one inside the test's process, and a real Virtuoso."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pyoxigraph as ox

START_S = 120.0

Answering = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; `form` holds its parameters."""

    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.form = {name: values[0] for name, values in parse_qs(body).items()}
        self.server.requests.append(self.form | {"authorization": self.headers.get("Authorization", "")})
        self.server.answer(self)

    def reply(self, status: int, body: bytes, media_type: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    answer: Answering
    requests: list[dict[str, str]]

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients hang up on purpose


class SparqlServer:
    """A server of the triples of a Turtle text, as pyoxigraph answers; `answer` may be replaced.

    Attributes:
        requests: the parameters of every request, with its `authorization`.
    """

    def __init__(self, turtle: str = "", *, port: int = 0) -> None:
        self.store = ox.Store()
        self.store.load(turtle.encode(), format=ox.RdfFormat.TURTLE)
        self._http = _Http(("127.0.0.1", port), Request)
        self._http.answer, self._http.requests = self.execute, []
        self.requests = self._http.requests
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/sparql"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def answer_with(self, answer: Answering) -> None:
        self._http.answer = answer

    def execute(self, request: Request) -> None:
        try:
            found = self.store.query(request.form["query"])
        except SyntaxError as error:
            return request.reply(400, str(error).encode())
        if isinstance(found, ox.QueryTriples):
            return request.reply(
                200, found.serialize(format=ox.RdfFormat.N_TRIPLES) or b"", "application/n-triples"
            )
        body = found.serialize(format=ox.QueryResultsFormat.JSON) or b""
        return request.reply(200, body, "application/sparql-results+json")

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Virtuoso:
    """A real Virtuoso over a directory of its own; `load` what it shall hold.

    Attributes:
        url: of its SPARQL endpoint; `authenticated_url` wants digest authentication.
    """

    user, password = "dba", "dba"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sql_port, self._http_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._http_port}/sparql"
        self.authenticated_url = f"{self.url}-auth"
        (directory / "virtuoso.ini").write_text(
            _CONFIGURATION.format(sql=self._sql_port, http=self._http_port)
        )
        self.process = self._start()

    @staticmethod
    def missing() -> str | None:
        """Why there is none here."""
        if shutil.which("virtuoso-t") and shutil.which("isql-vt"):
            return None
        return "virtuoso-t and isql-vt are missing: install Debian's package virtuoso-opensource"

    def load(self, file: Path, graph: str) -> None:
        """Load an N-Triples or Turtle file as a graph."""
        folder = str(file.parent)
        self.sql(f"ld_dir('{folder}', '{file.name}', '{graph}'); rdf_loader_run(); checkpoint;")
        failed = self.sql("SELECT ll_error FROM DB.DBA.LOAD_LIST WHERE ll_error IS NOT NULL;")
        assert "0 Rows" in failed, failed

    def sql(self, statements: str) -> str:
        command = ["isql-vt", f"127.0.0.1:{self._sql_port}", self.user, self.password, f"exec={statements}"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        assert self.process.poll() is not None
        (self._directory / "virtuoso.lck").unlink(missing_ok=True)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._directory / "output.log").open("ab") as log:
            process = subprocess.Popen(
                ["virtuoso-t", "+foreground", "+configfile", "virtuoso.ini"],
                cwd=self._directory,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                httpx.get(self.url, params={"query": "ASK {}"}, timeout=5).raise_for_status()
                return process
            except httpx.HTTPError:
                time.sleep(0.1)
        process.kill()
        process.wait()
        raise AssertionError((self._directory / "output.log").read_text()[-3000:])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


# The rows that public endpoints return at most, and little memory.
_CONFIGURATION = """
[Database]
DatabaseFile = virtuoso.db
ErrorLogFile = virtuoso.log
LockFile = virtuoso.lck
TransactionFile = virtuoso.trx
xa_persistent_file = virtuoso.pxa
FileExtend = 200
[TempDatabase]
DatabaseFile = temporary.db
TransactionFile = temporary.trx
[Parameters]
ServerPort = 127.0.0.1:{sql}
DirsAllowed = /
NumberOfBuffers = 20000
MaxDirtyBuffers = 15000
CheckpointInterval = 0
[HTTPServer]
ServerPort = 127.0.0.1:{http}
ServerThreads = 20
MaxClientConnections = 20
[SPARQL]
ResultSetMaxRows = 10000
MaxQueryExecutionTime = 60
"""
