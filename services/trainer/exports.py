"""`GET /v1/runs/{run}/export`: weights as a tar archive of a Hugging Face directory."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from kbqa.errors import RunConflictError
from kbqa.policy_store.durable import new_directory, sweep
from kbqa.runs.directory import Runs

_BLOCK = 512  # bytes; entries of a tar archive begin at multiples of it
_CHUNK = 1 << 20


def exports_router(runs: Runs, home: Path) -> APIRouter:
    """The route; another process, `services.trainer.export`, creates the directory."""
    router = APIRouter(prefix="/v1/runs", tags=["runs"])
    root = home / "exports"
    sweep(root)  # remove files of a trainer that died

    @router.get(
        "/{run}/export",
        summary="Weights as a Hugging Face directory",
        response_class=StreamingResponse,
        responses={200: {"content": {"application/x-tar": {}}}},
    )
    def export(
        run: str,
        version: str | None = None,
        checkpoint: Annotated[int | None, Query(ge=0)] = None,
        adapter: bool = False,
    ) -> StreamingResponse:
        """Weights of the newest version, another version or a checkpoint; LoRA is merged unless `adapter`."""
        runs.get(run)
        choice = [] if version is None else [f"--version={version}"]
        choice += [] if checkpoint is None else [f"--checkpoint={checkpoint}"]
        choice += ["--adapter"] if adapter else []
        with ExitStack() as stack:
            into = stack.enter_context(new_directory(root)) / "policy"
            made = subprocess.run(
                [*EXPORT_COMMAND, f"--home={home}", f"--run={run}", f"--into={into}", *choice],
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode:
                lines = made.stderr.strip().splitlines() or ["the export failed without a message"]
                raise RunConflictError(lines[-1].removeprefix("error: "))
            return StreamingResponse(archive(into, stack.pop_all()), media_type="application/x-tar")

    return router


# -P: do not import a directory "services" in the working directory instead of ours.
EXPORT_COMMAND = (sys.executable, "-P", "-m", "services.trainer.export")


def archive(directory: Path, finally_close: ExitStack) -> Iterator[bytes]:
    """A tar archive of the files of a directory, in pieces."""
    with finally_close:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(directory)))
            entry.size = path.stat().st_size
            yield entry.tobuf()
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    yield piece
            yield bytes(-entry.size % _BLOCK)
        yield bytes(2 * _BLOCK)
