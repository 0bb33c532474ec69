"""python -m services.gateway [--host HOST] [--port PORT] [--home DIR] [--kg-server-url URL]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kbqa.telemetry.logs import configure_logging
from kbqa.tracing import traced
from services.gateway.settings import GatewaySettings
from services.http import exit_code, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gateway until it is told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gateway", description="Answer questions with the promoted policy.")
    parser.add_argument("--host", help="address to listen on (KBQA_GATEWAY_HOST, 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (KBQA_GATEWAY_PORT, 8080)")
    parser.add_argument("--home", help="directory that holds the policies (KBQA_HOME, ./var)")
    parser.add_argument("--kg-server-url", help="where the graphs are (KBQA_KG_SERVER_URL)")
    options = vars(parser.parse_args(argv))

    def run() -> None:
        settings = GatewaySettings.load(**options)
        configure_logging("gateway", settings.log_level, settings.log_format)
        # This imports torch; --help and errors in settings should not wait for it.
        from services.gateway.app import create_app
        from services.gateway.collector import look_seldom

        app = create_app(settings)
        look_seldom()
        operations = app.state.operations
        with traced("gateway", settings.traces_url):
            serve(
                app,
                settings.host,
                settings.port,
                drain_s=settings.drain_s,
                beside=None if operations is None else (operations, settings.operations_port),
                proxies=settings.trusted_proxies,
            )

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
