"""`kbqa up`: runs every service on this machine."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer

from services.cli.options import DEFAULT_HOME, Home
from services.cli.programs import USUAL_PORTS, has_policy
from services.cli.supervisor import Stack
from services.settings import SERVICES
from services.urls import without_password

_WITHOUT_TRAINING = ("kg_server", "gateway")


def _port(service: str) -> Any:
    return typer.Option(
        min=1,
        max=65535,
        envvar=f"KBQA_{service.upper()}_PORT",
        help=f"Port of the {service} (default: {USUAL_PORTS[service]}).",
    )


def up(
    home: Home = DEFAULT_HOME,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Also start the trainer and a rollout worker.")
    ] = True,
    rollout_workers: Annotated[int, typer.Option(min=1, help="Number of rollout worker processes.")] = 1,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    kg_server_port: Annotated[int | None, _port("kg_server")] = None,
    rollout_worker_port: Annotated[int | None, _port("rollout_worker")] = None,
    trainer_port: Annotated[int | None, _port("trainer")] = None,
    gateway_port: Annotated[int | None, _port("gateway")] = None,
    redis_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the embedded Redis (default: any free port)."),
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Use a free port for each service whose port is not given.")
    ] = False,
    timeout_s: Annotated[float, typer.Option(help="Seconds to wait until all services are ready.")] = 180.0,
) -> None:
    """Start every service on this machine, and keep them running until Ctrl-C.

    An embedded Redis server is started as well, unless KBQA_REDIS_URL is set.
    """
    given = {
        "kg_server": kg_server_port,
        "rollout_worker": rollout_worker_port,
        "trainer": trainer_port,
        "gateway": gateway_port,
        "redis": redis_port,
    }
    ports = {name: port for name, port in given.items() if port is not None}
    services = SERVICES if train else _WITHOUT_TRAINING
    # SIGTERM and SIGHUP (the terminal was closed) stop the stack as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    stack = Stack(
        home,
        services=services,
        rollout_workers=rollout_workers,
        ports=ports,
        free_ports=free_ports,
        host=host,
        on_event=typer.echo,
    )
    try:
        with stack:
            _describe(stack)
            stack.wait_ready(timeout_s)
            typer.echo("ready")
            if not has_policy(home):
                typer.echo(
                    "no policy has been promoted yet, so the reader answers for every graph: "
                    "to train a policy, run kbqa demo, or kbqa train and then kbqa promote RUN"
                )
            threading.Event().wait()
    except KeyboardInterrupt:
        typer.echo("stopped")


def _describe(stack: Stack) -> None:
    for service, url in stack.urls.items():
        typer.echo(f"{service:<15} {url}")
    if stack.redis_url is not None:
        typer.echo(f"{'redis':<15} {without_password(stack.redis_url)}")
    if stack.service_key_path is not None:
        typer.echo(
            f"{'key':<15} {stack.service_key_path}: kg_server and trainer require it (other commands read it "
            "from KBQA_KG_SERVER_API_KEY and KBQA_TRAINER_API_KEY)"
        )
    typer.echo(f"{'logs':<15} {stack.log_dir}")
