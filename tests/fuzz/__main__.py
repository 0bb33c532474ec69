"""Atheris over the parsers: `python -m tests.fuzz SECONDS [TARGET …]`; what it learns stays in var/fuzz.

The seconds are shared by the targets. Ends with 1 if one of them failed; it has then printed the text, which
belongs into `test_parsers.FOUND`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kbqa"]):
    from tests.fuzz.parsers import TARGETS, Target

_ROOM = Path("var/fuzz")
_CPU_S = 5.0  # no text may keep a parser busy for longer, instrumented as it is
_HANGS_S = 600  # by the clock, which runs on while a busy machine does something else


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--target"]:
        _, name, seconds = arguments
        _search(name, TARGETS[name], int(seconds))
    seconds, *names = arguments
    unknown = [name for name in names if name not in TARGETS]
    if unknown or not seconds.isdigit():
        sys.exit(f"usage: python -m tests.fuzz SECONDS [TARGET …], with targets of {', '.join(TARGETS)}")
    names = names or list(TARGETS)
    share = max(1, int(seconds) // len(names))
    failed = [name for name in names if _run(name, share) != 0]
    sys.stderr.write(f"failed: {', '.join(failed)}\n" if failed else "nothing found\n")
    return 1 if failed else 0


def _run(name: str, seconds: int) -> int:
    """A search in a process of its own, since libFuzzer ends its process."""
    command = [sys.executable, "-m", "tests.fuzz", "--target", name, f"{seconds}"]
    return subprocess.run(command, check=False).returncode


def _search(name: str, target: Target, seconds: int) -> None:
    corpus, failures = _ROOM / name / "corpus", _ROOM / name / "failures"
    corpus.mkdir(parents=True, exist_ok=True)
    failures.mkdir(exist_ok=True)
    (corpus / "words").write_bytes(bytes(range(128, 256)))

    def check(data: bytes) -> None:
        text = target.text(data)
        began = time.process_time()
        try:
            target.check(text)
            assert time.process_time() - began < _CPU_S, "the parser takes too long"
        except Exception:
            sys.stderr.write(f"{name} fails on {text!r}\n")
            raise

    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={failures}/",
        f"-timeout={_HANGS_S}",
        "-max_len=1024",
        "-print_final_stats=1",
    ]
    atheris.Setup([name, *options, f"{corpus}"], check)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
