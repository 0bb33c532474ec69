"""What Dockerfile, compose.yaml and what they mount say, without an engine."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from fnmatch import fnmatch

import pytest
import yaml

from deploy.images.requirements import requirements
from kbqa import __version__
from kbqa.planning.architectures import REVISIONS
from scripts.chart_reference import SETTINGS
from services.settings import SHARED_VARIABLES, variables_of
from tests.deploy.compose import BASES, ROOT, SERVICES
from tests.deploy.helm import CHART, defaults

BY_SERVICE = {settings.service: settings for settings in SETTINGS.values()}
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = (ROOT / "deploy" / "images" / "Dockerfile").read_text(encoding="utf-8")
QWEN = "Qwen/Qwen2.5-3B-Instruct"
GPU = {"model", "vllm-rollouts", "vllm-gateway"}
MONITORING = {"prometheus", "alertmanager", "grafana"}


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]


def test_without_a_profile_the_stack_needs_no_gpu(services):
    by_profile = {name: set(service.get("profiles", ())) for name, service in services.items()}
    assert {name for name, profiles in by_profile.items() if profiles == {"gpu"}} == GPU
    assert {name for name, profiles in by_profile.items() if profiles == {"monitoring"}} == MONITORING
    rest = {name for name, profiles in by_profile.items() if not profiles}
    assert rest == {*SERVICES, "redis", "graph", "first-run"}


def test_every_container_is_confined(services):
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("privileged") is None, name


def test_ports_are_open_to_this_machine_alone(services):
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 6
    assert all(port.startswith("${LISTEN:-127.0.0.1}:") for port in ports)


def test_services_know_the_variables_that_they_are_given(services):
    for name in SERVICES:
        settings = BY_SERVICE[name.replace("-", "_")]
        ours = {key for key in services[name]["environment"] if key.startswith("KBQA_")}
        assert ours <= {*variables_of(settings).values(), *SHARED_VARIABLES}, name


def test_what_waits_is_started_after_what_it_waits_for(services):
    conditions = {
        (name, other): wait["condition"]
        for name, service in services.items()
        for other, wait in (
            service["depends_on"] if isinstance(service.get("depends_on"), dict) else {}
        ).items()
    }
    for name in ("trainer", "rollout-worker"):
        assert conditions[name, "redis"] == "service_healthy"
    assert conditions["kg-server", "graph"] == "service_completed_successfully"
    for name in ("trainer", "rollout-worker", "gateway"):
        assert conditions[name, "kg-server"] == "service_healthy"
    assert (
        conditions["first-run", "trainer"] == conditions["first-run", "rollout-worker"] == "service_healthy"
    )


def test_cached_answers_cannot_fill_the_queues(services):
    assert [name for name in SERVICES if "KBQA_REDIS_URL" in services[name]["environment"]] == [
        "rollout-worker",
        "trainer",
    ]


def test_containers_outlive_their_drain(services):
    def drain(name):
        settings = BY_SERVICE[name.replace("-", "_")]
        given = services[name]["environment"].get(variables_of(settings)["drain_s"])
        return int(given or settings.model_fields["drain_s"].default)

    for name in SERVICES:
        assert int(services[name]["stop_grace_period"].removesuffix("s")) >= drain(name) + 10, name
    assert drain("trainer") == defaults()["trainer"]["drainSeconds"]


def test_the_trainer_has_the_time_to_write_the_checkpoint_of_a_large_model(services):
    """37 GB at 200 MB a second, and a minute for what is being computed."""
    needed = 37e9 / 200e6 + 60
    assert int(services["trainer"]["stop_grace_period"].removesuffix("s")) >= needed
    assert int(services["trainer"]["environment"]["KBQA_TRAINER_DRAIN_S"]) >= needed


@pytest.mark.parametrize("name", ["vllm-rollouts", "vllm-gateway", "gateway"])
def test_what_waits_for_a_large_model_is_not_given_up_for_half_an_hour(services, name):
    assert services[name]["healthcheck"]["start_period"] == "30m"


def test_with_gpus_nothing_begins_before_its_model_is_loaded(services):
    for vllm, owner in (("vllm-rollouts", "rollout-worker"), ("vllm-gateway", "gateway")):
        assert services[vllm]["depends_on"]["model"] == {"condition": "service_completed_successfully"}
        wait = services[owner]["depends_on"][vllm]
        assert wait == {"condition": "service_healthy", "required": False}


def test_with_gpus_the_trainer_trains_on_nothing_else(services):
    assert services["trainer"]["environment"]["KBQA_TRAINER_DEVICE"] == "${DEVICE:-auto}"
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    (block,) = (block for block in example.split("\n\n") if "#COMPOSE_PROFILES=gpu" in block)
    assert "\n#DEVICE=cuda\n" in block


def test_no_password_has_a_default():
    text = COMPOSE.read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{([A-Z_]*PASSWORD):\?", text)) == {"REDIS_PASSWORD", "GRAFANA_PASSWORD"}
    assert not re.search(r"PASSWORD:?-", text)


def test_make_gives_every_password_a_value_and_keeps_those_that_are_set(tmp_path):
    for name in ("Makefile", ".env.example"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / ".env").write_text("SEED=7\nREDIS_PASSWORD=mine\nGRAFANA_PASSWORD=\n", encoding="utf-8")
    for _ in range(2):
        subprocess.run(["make", "--always-make", ".env"], cwd=tmp_path, check=True, capture_output=True)
    lines = (tmp_path / ".env").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines)
    assert (given["SEED"], given["REDIS_PASSWORD"]) == ("7", "mine")
    assert re.fullmatch("[0-9a-f]{32}", given["GRAFANA_PASSWORD"])
    assert re.fullmatch("[0-9a-f]{32}", given["SERVICE_KEY"])
    assert len(lines) == 4


def test_large_layers_depend_on_requirements_alone():
    """An edit of README, LICENSE or other parts of pyproject.toml leaves the lists as they are."""
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.M)
    named = {stage.split("\n")[0].split(" AS ")[-1]: stage for stage in stages[1:]}
    before = "".join(named[name] for name in ("build", "requirements", "plain", "tensors"))
    assert not re.search(r"^COPY (?!--from).*(pyproject|README|LICENSE|kbqa)", before, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = {*requirements(project, ["rollout-worker", "qlora"])}
    assert {"bitsandbytes>=0.48", "celery>=5.5", "fastapi>=0.116"} <= listed
    assert not any(requirement.startswith("kbqa") for requirement in listed)


def test_every_image_can_send_traces():
    [lists] = re.findall(r"^RUN (list\(\).*\n.*)$", DOCKERFILE, re.M)
    [tensors], [plain] = re.findall(r"tensors=(\S+)", lists), re.findall(r"list (\S+) >plain.txt", lists)
    for extras in (tensors, plain):
        assert "otel" in extras.split(",")


def test_the_default_build_of_torch_has_no_cuda():
    """Both where it is built by hand and by compose; a wheel of one's own comes first."""
    index = "https://download.pytorch.org/whl/cpu"
    assert f"ARG TORCH_CPU_INDEX={index}\n" in DOCKERFILE
    assert f"${{TORCH_CPU_INDEX-{index}}}" in COMPOSE.read_text(encoding="utf-8")
    assert "ARG VARIANT=cpu\n" in DOCKERFILE


def test_nobody_but_its_own_service_reaches_a_vllm(services):
    networks = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["networks"]
    for vllm, owner in (("vllm-rollouts", "rollout-worker"), ("vllm-gateway", "gateway")):
        [network] = services[vllm]["networks"]
        assert networks[network] == {"internal": True}
        members = {name for name, service in services.items() if network in service.get("networks", ())}
        assert members == {vllm, owner}
        assert "ports" not in services[vllm]


def test_compose_and_chart_run_the_same_vllm_and_the_same_redis(services):
    values, compose = defaults(), services["vllm-rollouts"]
    image = values["vllm"]["image"]
    assert compose["image"] == f"{image['repository']}:{image['tag']}"
    given = set(re.findall(r"--[a-z-]+", " ".join(compose["command"])))
    engine = (CHART / "templates" / "_engine.tpl").read_text(encoding="utf-8")
    always = engine[: engine.index("lora.enabled")]
    assert given == set(re.findall(r"    - (--[a-z-]+)=?", always)) - {"--tensor-parallel-size"}
    redis = (CHART / "templates" / "redis" / "_server.tpl").read_text(encoding="utf-8")
    for setting in (
        "--appendonly yes",
        "--appendfsync everysec",
        '--save ""',
        "--maxmemory-policy noeviction",
    ):
        assert setting in redis
        assert setting in services["redis"]["command"][2]


def test_the_example_names_every_variable_and_no_other():
    asked = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", COMPOSE.read_text(encoding="utf-8")))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?([A-Z_]+)=", example, re.M))
    assert asked == named - {"COMPOSE_PROFILES"}


def test_an_image_for_each_service_asks_after_its_own_port():
    assert not DOCKERFILE.startswith("# syntax")
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.M)
    targets = {stage.split("\n")[0].split(" AS ")[-1]: stage for stage in stages[1:]}
    for name in SERVICES:
        port = BY_SERVICE[name.replace("-", "_")].model_fields["port"].default
        assert f"EXPOSE {port}\n" in targets[name]
        assert f"http://127.0.0.1:{port}/" in targets[name]
        assert f'CMD ["kbqa", "serve", "{name}"]' in targets[name]
    assert "USER 10001:10001" in targets["runtime"]
    assert f"ARG PYTHON_IMAGE={BASES[0]}\n" in DOCKERFILE


def test_one_version_is_built_and_installed():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
    assert set(re.findall(r"ARG VERSION=(.+)", DOCKERFILE)) == {__version__}
    assert set(re.findall(r"IMAGE_TAG:-([^}]+)", COMPOSE.read_text(encoding="utf-8"))) == {__version__}


def test_the_build_sees_the_package_alone():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert not [rule for rule in rules if rule in ("!.env", "!var", "!.venv", "!.git")]


def test_prometheus_asks_every_service_where_it_listens():
    told = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    targets = {}
    for job in told["scrape_configs"]:
        for static in job.get("static_configs", ()):
            host, port = static["targets"][0].split(":")
            targets[host] = int(port)
        for names in job.get("dns_sd_configs", ()):
            targets[names["names"][0]] = names["port"]
    # kg_server and trainer require keys there, and show their metrics on another port.
    ports = dict.fromkeys(SERVICES, "port") | dict.fromkeys(("kg-server", "trainer"), "operations_port")
    assert targets == {
        name: BY_SERVICE[name.replace("-", "_")].model_fields[port].default for name, port in ports.items()
    }


def test_prometheus_reads_the_alerts_and_sends_them_to_alertmanager(services):
    told = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    prometheus, alertmanager = services["prometheus"], services["alertmanager"]
    assert prometheus["image"].startswith("prom/prometheus:v3.")
    [manager] = told["alerting"]["alertmanagers"]
    assert manager["static_configs"] == [{"targets": ["alertmanager:9093"]}]
    assert alertmanager["ports"][0].endswith(":9093")
    mounts = dict(volume.removesuffix(":ro").split(":") for volume in prometheus["volumes"])
    assert f"--config.file={mounts['./deploy/compose/prometheus.yaml']}" in prometheus["command"]
    [rules] = told["rule_files"]
    assert fnmatch(f"{mounts['./deploy/helm/alerts']}/kbqa.yaml", rules)


def test_continuous_integration_checks_tests_and_renders_the_chart():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert script.splitlines()[-1] == "make check test chart"


def test_services_send_the_key_that_they_require(services):
    def key(service, variable):
        return services[service]["environment"][variable]

    [shared] = {
        *(
            key(service, "KBQA_KG_SERVER_API_KEY")
            for service in (*SERVICES, "first-run")
            if service != "kg-server"
        ),
        key("kg-server", "KBQA_KG_SERVER_API_KEYS"),
        key("trainer", "KBQA_TRAINER_API_KEYS"),
        key("first-run", "KBQA_TRAINER_API_KEY"),
    }
    assert shared.startswith("${SERVICE_KEY:?"), "without a key nothing starts"


def filled_in(text: str, **variables: str) -> str:
    """A value of compose.yaml, which fills in variables as a shell does.

    Raises:
        ValueError: it requires a variable that is not there; with what it says then.
    """
    script = f"cat <<END\n{text}\nEND"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=os.environ | variables)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout.removesuffix("\n")


@pytest.mark.parametrize(
    ("variables", "base", "revision"),
    [
        ({}, QWEN, REVISIONS[QWEN]),
        ({"MODEL_REVISION": "main"}, QWEN, "main"),
        ({"MODEL": "other/model", "MODEL_REVISION": "abc"}, "other/model", "abc"),
    ],
)
def test_what_is_downloaded_is_what_is_served_and_what_the_trainer_finds(services, variables, base, revision):
    for name in ("model", "vllm-rollouts", "vllm-gateway"):
        words = [filled_in(word, **variables) for word in services[name]["command"]]
        assert base in words
        assert words[words.index("--revision") + 1] == revision
    assert filled_in(services["trainer"]["environment"]["KBQA_BASE_REVISION"], **variables) == revision


def test_the_commit_of_one_model_is_not_asked_of_another(services):
    asked = [services["trainer"]["environment"]["KBQA_BASE_REVISION"], *services["model"]["command"]]
    assert asked.count(asked[0]) == 2
    assert filled_in(asked[0], MODEL="other/model", MODEL_REVISION="").startswith("MODEL_REVISION_is_missing")


def test_nothing_is_required_within_an_alternative():
    # Most releases of Docker Compose look at both alternatives, and would always refuse.
    assert not re.findall(r"\$\{[^}]*\$\{[^}]*\?[^}]*\}", COMPOSE.read_text(encoding="utf-8"))
