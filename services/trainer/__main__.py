"""python -m services.trainer [--host HOST] [--port PORT] [--home DIR]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kbqa.errors import ConfigurationError
from kbqa.telemetry.logs import configure_logging
from services.broker import create_celery, require_broker
from services.http import exit_code, serve
from services.trainer.settings import TrainerSettings

_HTTP_DRAIN_S = 10  # for requests; what has more time is the training process, after them


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trainer until it is told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainer", description="Train policies, one run at a time.")
    parser.add_argument("--host", help="address to listen on (KBQA_TRAINER_HOST, 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (KBQA_TRAINER_PORT, 8003)")
    parser.add_argument("--home", help="directory that holds runs and policies (KBQA_HOME, ./var)")
    options = vars(parser.parse_args(argv))

    def run() -> None:
        settings = TrainerSettings.load(**options)
        if settings.node_rank > 0:
            raise ConfigurationError(
                f"KBQA_TRAINING_NODE_RANK={settings.node_rank}: the trainer runs on machine 0 only; run "
                "python -m services.trainer.launch on this one"
            )
        configure_logging("trainer", settings.log_level, settings.log_format)
        # Before the heavy imports. When everything starts at once, Redis may need a moment.
        celery = create_celery("trainer", settings.broker_url, prefix=settings.queue_prefix)
        require_broker(celery, wait_s=settings.broker_wait_s)
        from services.trainer.app import create_app

        app = create_app(settings)
        operations = app.state.operations
        serve(
            app,
            settings.host,
            settings.port,
            drain_s=min(settings.drain_s, _HTTP_DRAIN_S),
            beside=None if operations is None else (operations, settings.operations_port),
        )

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
