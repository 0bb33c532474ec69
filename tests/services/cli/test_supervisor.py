"""A local stack: ports, restarts, and that nothing of it is ever left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest
import redis

from kbqa.errors import ConfigurationError
from kbqa.policy_store import NOT_PROMOTED
from services import processes
from services.cli.programs import choose_ports, read_service_key, redis_program, service_program, unready
from services.cli.supervisor import Stack, StackError
from services.settings import SERVICES
from tests.services.cli.conftest import family, gone
from tests.services.queues import answers, wait_until


@pytest.fixture
def quiet(monkeypatch):
    """No variable of the developer's own gets into the services."""
    for name in list(os.environ):
        if name.startswith("KBQA_") or name == "REDIS_URL":
            monkeypatch.delenv(name)


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_service_that_is_killed_is_started_again_and_its_log_is_kept_short(tmp_path, quiet, monkeypatch):
    events = []
    with Stack(tmp_path, services=["kg_server"], free_ports=True, on_event=events.append) as stack:
        stack.wait_ready(60)
        first = stack.pids()["kg_server"]
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while not (second := stack.pids().get("kg_server")) or second == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        stack.wait_ready(60)
        assert httpx.get(f"{stack.urls['kg_server']}/v1/kg").json() == {"graphs": []}
        assert events == [
            "kg_server was killed by SIGKILL; it is started again in 0.5 s",
            "kg_server is started again",
        ]
        log = stack.log_path("kg_server")
        assert "listening" in log.read_text()
        monkeypatch.setattr(processes, "_LONGEST_LOG", 10)
        wait_until(lambda: log.read_text() == "")
        assert "listening" in log.with_name("kg_server.log.1").read_text()
    assert gone([psutil.Process(pid) for pid in (first, second) if psutil.pid_exists(pid)], 0)


def test_a_port_in_use_is_named_with_its_option(tmp_path, quiet, taken_port):
    stack = Stack(tmp_path, services=["kg_server", "gateway"], ports={"gateway": taken_port}, free_ports=True)
    with pytest.raises(ConfigurationError, match=f"port {taken_port} on 127.0.0.1 is in use.*--gateway-port"):
        stack.start()
    assert stack.pids() == {}


def test_free_ports_are_all_different():
    names = [str(number) for number in range(50)]
    assert len(set(choose_ports("127.0.0.1", names, {}, free=True).values())) == 50


def test_a_wrong_setting_is_told_at_once_with_its_reason(tmp_path, quiet, monkeypatch):
    monkeypatch.setenv("KBQA_GATEWAY_QUEUE", "-1")
    started = time.monotonic()
    with (
        pytest.raises(
            StackError, match=r"gateway ended with code 2: KBQA_GATEWAY_QUEUE: .* \(its log: .*gateway.log"
        ),
        Stack(tmp_path, services=["gateway"], free_ports=True, on_event=lambda _: None) as stack,
    ):
        stack.wait_ready(60)
    assert time.monotonic() - started < 20


def test_what_is_not_ready_in_time_is_named(tmp_path, quiet):
    with (
        pytest.raises(StackError, match=r"not ready after 0 s: kg_server: .* does not answer"),
        Stack(tmp_path, services=["kg_server"], free_ports=True) as stack,
    ):
        stack.wait_ready(0)


def test_two_stacks_do_not_share_a_redis_directory(tmp_path, quiet):
    with Stack(tmp_path, services=["rollout_worker"], free_ports=True, on_event=lambda _: None) as first:
        assert first.redis_url.startswith("redis://127.0.0.1:")
        with pytest.raises(ConfigurationError, match="another stack already runs in"):
            Stack(tmp_path, services=["rollout_worker"], free_ports=True).start()


def test_a_given_redis_is_used(tmp_path, quiet, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:9/0")
    with Stack(tmp_path, services=["rollout_worker"], free_ports=True, on_event=lambda _: None) as stack:
        assert stack.redis_url == "redis://127.0.0.1:9/0"
        assert set(stack.pids()) <= {"rollout_worker"}


def test_cached_answers_do_not_fill_the_redis_of_the_queues(tmp_path, quiet):
    services = ["kg_server", "rollout_worker"]
    with Stack(tmp_path, services=services, free_ports=True, on_event=lambda _: None) as stack:
        processes = {name: psutil.Process(pid) for name, pid in stack.pids().items() if name in services}
        # The kernel shows no environment while a program is being loaded.
        wait_until(lambda: all(process.environ() for process in processes.values()))
        given = {name: process.environ().get("KBQA_REDIS_URL") for name, process in processes.items()}
        assert given == {"kg_server": None, "rollout_worker": stack.redis_url}
        options = {"maxmemory": "268435456", "maxmemory-policy": "noeviction"}
        with redis.Redis.from_url(stack.redis_url) as client:
            wait_until(lambda: answers(client))
            assert {name: client.config_get(name)[name] for name in options} == options


def test_further_rollout_workers_are_processes_with_ports_of_their_own(tmp_path, quiet):
    services = ["kg_server", "rollout_worker"]
    with Stack(tmp_path, services=services, rollout_workers=2, free_ports=True) as stack:
        assert list(stack.urls) == ["kg_server", "rollout_worker", "rollout_worker-2"]
        assert len(set(stack.urls.values())) == 3
        stack.wait_ready(100)
        assert set(stack.pids()) == {*stack.urls, "redis"}


def test_the_reaper_ends_what_ignores_being_asked():
    reaper = subprocess.Popen(
        [sys.executable, "-m", "services.cli.reaper", "0.3"], stdin=subprocess.PIPE, process_group=0
    )
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(9)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", stubborn], stdout=subprocess.PIPE, process_group=reaper.pid
    )
    with child.stdout:
        child.stdout.read(1)
        reaper.stdin.close()
        assert child.wait(10) == -signal.SIGKILL
    assert reaper.wait(10) == 0


def urls_once_ready(process):
    urls = {}
    for line in process.stdout:
        if line.startswith("ready"):
            return urls
        name, url = line.split()
        urls[name] = url
    raise AssertionError(process.wait())


def test_kbqa_up_keeps_every_service_running_until_it_is_told_to_stop(kbqa):
    process = kbqa("up", "--free-ports", KBQA_GATEWAY_READER="false")
    urls = urls_once_ready(process)
    assert "no policy has been promoted yet" in process.stdout.readline()
    statuses = {name: httpx.get(f"{urls[name]}/readyz").status_code for name in SERVICES}
    assert statuses == {"kg_server": 200, "rollout_worker": 200, "trainer": 200, "gateway": 503}
    children = family(process.pid)
    (victim,) = [child for child in children if "services.kg_server" in child.cmdline()]
    victim.kill()
    assert process.stdout.readline() == "kg_server was killed by SIGKILL; it is started again in 0.5 s\n"
    assert process.stdout.readline() == "kg_server is started again\n"
    deadline = time.monotonic() + 20
    while unready(urls["kg_server"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    children += family(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert process.stdout.read() == "stopped\n"
    assert gone(children, 0)


def test_kbqa_up_is_ready_once_the_reader_is_loaded(kbqa):
    process = kbqa("up", "--free-ports", "--no-train")
    url = urls_once_ready(process)["gateway"]
    assert unready(url) is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_crash_does_not_let_the_file_of_redis_grow_without_bound(tmp_path):
    port = choose_ports("127.0.0.1", ["redis"], {}, free=True)["redis"]
    (tmp_path / "redis").mkdir()
    program = redis_program(tmp_path / "redis", port)
    value = "x" * 2**20
    # With a slow disk, Redis answers before it has written. If it is killed then, its file is shorter.
    for megabytes, reached in ((60, lambda size: size > 60 * 2**20), (8, lambda size: size < 16 * 2**20)):
        with subprocess.Popen(program.command, stdout=subprocess.DEVNULL) as server:
            try:
                wait_until(lambda: program.unready() is None)
                with redis.Redis(port=port) as client:
                    for _ in range(megabytes):
                        client.set("the same", value)
                    wait_until(lambda: reached(client.info("persistence")["aof_current_size"]))  # noqa: B023
            finally:
                server.kill()


@pytest.mark.parametrize(
    ("reason", "is_ready"),
    [
        (NOT_PROMOTED, True),
        (f"{NOT_PROMOTED}; the policy is being loaded", False),
        (f"{NOT_PROMOTED}; kg_server does not answer", False),
    ],
)
def test_a_gateway_that_lacks_only_a_promoted_policy_counts_as_ready(monkeypatch, reason, is_ready):
    answer = httpx.Response(503, json={"detail": reason})
    monkeypatch.setattr(httpx, "get", lambda *_, **__: answer)
    assert service_program("gateway", "http://gateway", {}).unready() == (None if is_ready else reason)


def test_a_gateway_that_does_not_answer_in_time_is_not_ready(monkeypatch):
    def timed_out(url, **_):
        if url.endswith("/readyz"):
            raise httpx.ReadTimeout("too slow")
        return httpx.Response(200)

    monkeypatch.setattr(httpx, "get", timed_out)
    assert service_program("gateway", "http://gateway", {}).unready() == (
        "http://gateway does not answer (ReadTimeout)"
    )


def test_nothing_outlives_kbqa_up_even_if_it_is_killed(kbqa):
    process = kbqa("up", "--free-ports")
    urls_once_ready(process)
    children = family(process.pid)
    assert len(children) >= 6
    process.kill()
    assert gone(children, 40)


def test_kbqa_up_with_a_port_in_use_leaves_nothing_running(run, taken_port):
    code, output = run("up", "--no-train", "--free-ports", "--kg-server-port", str(taken_port))
    assert code == 2
    assert f"port {taken_port} on 127.0.0.1 is in use" in output
    assert "--kg-server-port" in output


def test_beyond_this_machine_services_require_a_key_that_the_others_have(tmp_path, quiet):
    with Stack(tmp_path, services=("kg_server",), free_ports=True, host="0.0.0.0") as stack:
        stack.wait_ready(60)
        key = read_service_key(tmp_path)
        graphs = f"{stack.urls['kg_server']}/v1/kg"
        assert httpx.get(graphs).status_code == 401
        assert httpx.get(graphs, headers={"X-API-Key": key}).status_code == 200
    assert stack.service_key_path.stat().st_mode & 0o777 == 0o600
    assert read_service_key(tmp_path) == key, "other commands find it later"
