"""python -m services.rollout_worker [--host HOST] [--port PORT] [--home DIR] [--concurrency N]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kbqa.telemetry.logs import configure_logging
from services.broker import create_celery, require_broker
from services.http import exit_code
from services.rollout_worker.settings import RolloutWorkerSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker until it is told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="rollout_worker", description="Play and score episodes.")
    parser.add_argument("--host", help="address of probes and metrics (KBQA_ROLLOUT_WORKER_HOST, 127.0.0.1)")
    parser.add_argument("--port", type=int, help="their port (KBQA_ROLLOUT_WORKER_PORT, 8002)")
    parser.add_argument("--home", help="directory that holds the policies (KBQA_HOME, ./var)")
    parser.add_argument("--concurrency", type=int, help="requests worked on at a time")
    options = vars(parser.parse_args(argv))

    def run() -> None:
        settings = RolloutWorkerSettings.load(**options)
        configure_logging("rollout_worker", settings.log_level, settings.log_format)
        # Before the heavy imports. When everything starts at once, Redis may need a moment.
        celery = create_celery("rollout_worker", settings.broker_url, prefix=settings.queue_prefix)
        require_broker(celery, wait_s=settings.broker_wait_s)
        from services.rollout_worker.worker import run_worker

        run_worker(settings)

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
