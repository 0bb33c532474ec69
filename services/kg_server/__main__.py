"""python -m services.kg_server [--host HOST] [--port PORT] [--home DIR]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kbqa.telemetry.logs import configure_logging
from kbqa.tracing import traced
from services.http import exit_code, serve
from services.kg_server.settings import KgServerSettings

# After which a thread gives way to another, a fifth of Python's default: a look-up waits that long for a
# change that computes.
_SWITCH_INTERVAL_S = 0.001


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="kg_server", description="Serve the graphs under KBQA_HOME.")
    parser.add_argument("--host", help="address to listen on (KBQA_KG_SERVER_HOST, 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (KBQA_KG_SERVER_PORT, 8001)")
    parser.add_argument("--home", help="directory that holds the graphs (KBQA_HOME, ./var)")
    options = vars(parser.parse_args(argv))

    def run() -> None:
        settings = KgServerSettings.load(**options)
        configure_logging("kg_server", settings.log_level, settings.log_format)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        from services.kg_server.app import create_app

        app = create_app(settings)
        operations = app.state.operations
        with traced("kg_server", settings.traces_url):
            serve(
                app,
                settings.host,
                settings.port,
                drain_s=settings.drain_s,
                beside=None if operations is None else (operations, settings.operations_port),
            )

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
