"""python -m services.trainer.export --home DIR --run RUN --into DIR: weights as a Hugging Face directory.

It runs in a separate process, because it may load a model in addition to the one in training. The directory
appears under its name only when it is complete.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kbqa.runs.directory import Runs
from kbqa.runs.export import export
from kbqa.telemetry.logs import configure_logging
from services.http import exit_code
from services.trainer.settings import TrainerSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Export a version or a checkpoint of a run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.export", description="Write a Hugging Face directory.")
    parser.add_argument("--home", type=Path, required=True, help="directory that holds runs and policies")
    parser.add_argument("--run", required=True)
    parser.add_argument("--into", type=Path, required=True, help="directory to create; it must not exist yet")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", help="full id (default: the run's newest)")
    which.add_argument("--checkpoint", type=int, metavar="STEP")
    parser.add_argument("--adapter", action="store_true", help="leave a LoRA adapter apart from its base")
    options = parser.parse_args(argv)

    def run() -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # standard error contains the reason of a failure
        configure_logging("trainer", "WARNING")
        directory = Runs(options.home / "runs").get(options.run)
        export(
            TrainerSettings.load(home=options.home).policies(),
            directory,
            options.into,
            version=options.version,
            checkpoint=options.checkpoint,
            adapter=options.adapter,
        )

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
