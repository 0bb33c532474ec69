"""Every scenario of the chart: lints, renders, fits three versions of Kubernetes and our own services."""

from __future__ import annotations

import hashlib
import json
import re

import click
import pytest
import typer
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from kbqa.planning.machines import GIB, host_for
from kbqa.recipes import load_recipe
from kbqa.telemetry.metrics import Metrics
from kbqa.telemetry.table import METRICS
from scripts.chart_reference import SETTINGS
from services.cli.__main__ import create_cli
from services.cli.options import read_pairs
from services.http import install
from services.settings import SHARED_VARIABLES, variables_of
from services.trainer.settings import TrainerSettings
from tests.deploy.checks import VERSIONS, problems
from tests.deploy.conftest import ALL, merged, values_of
from tests.deploy.helm import defaults, lint, manifests_of
from tests.deploy.objects import component, of_kind, pods, selects, service_of, services, title, variables

pytestmark = pytest.mark.chart

BY_SERVICE = {settings.service: settings for settings in SETTINGS.values()}
each_scenario = pytest.mark.parametrize("scenario", ALL)


def commands(objects):
    """Of every container that runs `kbqa`."""
    for pod in pods(objects):
        for container in pod.containers:
            if container["command"][0] == "kbqa":
                yield container["command"][1:]


@each_scenario
def test_scenarios_lint(scenario):
    assert [complaint for version in VERSIONS for complaint in lint(values_of(scenario), version)] == []


@each_scenario
def test_scenarios_hold_what_must_hold_of_every_chart(chart, scenario):
    assert problems(chart(scenario), merged(defaults(), values_of(scenario))) == []


def test_without_values_every_part_runs_with_a_gpu_where_one_is_needed(chart):
    objects = chart()
    parts = {component(pod) for pod in pods(objects)}
    assert parts == {"kg-server", "rollout-worker", "trainer", "gateway", "redis", "redis-cache", "jobs"}
    gpus = {
        f"{component(pod)}/{container['name']}": container["resources"]["limits"]["nvidia.com/gpu"]
        for pod in pods(objects)
        for container in pod.containers
        if "nvidia.com/gpu" in container["resources"]["limits"]
    }
    assert gpus == {"rollout-worker/vllm": 1, "trainer/trainer": 1, "gateway/vllm": 1}
    assert device_of_the_trainer(objects) == "cuda"
    engines = [c for pod in pods(objects) for c in pod.containers if c["name"] == "vllm"]
    assert all(c["command"] == ["vllm", "serve", "Qwen/Qwen2.5-3B-Instruct"] for c in engines)
    assert all("--host=127.0.0.1" in c["args"] and c["restartPolicy"] == "Always" for c in engines)


def test_cpu_small_needs_no_gpu_and_no_vllm(chart):
    objects = chart("cpu-small")
    containers = [container for pod in pods(objects) for container in pod.containers]
    assert {container["name"] for container in containers}.isdisjoint({"vllm", "model"})
    assert not any("nvidia.com/gpu" in container["resources"]["limits"] for container in containers)
    kept = [c for c in of_kind(objects, "PersistentVolumeClaim") if c["metadata"].get("annotations")]
    assert kept == []
    assert device_of_the_trainer(objects) is None


def device_of_the_trainer(objects):
    [trainer] = [container for _, container, service in services(objects) if service == "trainer"]
    return variables(trainer).get("KBQA_TRAINER_DEVICE")


def test_with_everything_off_nothing_runs(chart):
    assert {found["kind"] for found in chart("everything-off")} == {"ServiceAccount"}


@each_scenario
def test_services_know_every_variable_and_accept_its_value(chart, scenario, monkeypatch):
    for _, container, service in services(chart(scenario)):
        settings, given = BY_SERVICE[service], variables(container)
        ours = {name for name in given if name.startswith("KBQA_")}
        assert ours <= {*variables_of(settings).values(), *SHARED_VARIABLES}, service
        with monkeypatch.context() as environment:
            for name, value in given.items():
                environment.setenv(name, value)
            loaded = settings.load()
        assert loaded.host == "0.0.0.0"


def test_nodes_meet_at_the_trainers_pod_and_share_its_gpus_and_its_volume(chart, monkeypatch):
    objects = chart("multi-node")
    [trainer] = [pod for pod in pods(objects) if component(pod) == "trainer"]
    [node] = [pod for pod in pods(objects) if component(pod) == "training-node"]
    [first], [other] = trainer.spec["containers"], node.spec["containers"]
    assert other["resources"] == first["resources"]
    assert other["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert [v for v in node.spec["volumes"] if v["name"] == "home"] == [
        v for v in trainer.spec["volumes"] if v["name"] == "home"
    ]
    shared = ("KBQA_TRAINING_NODES", "KBQA_TRAINING_PROCESSES", "KBQA_TRAINING_RENDEZVOUS", "KBQA_HOME")
    given = variables(first)
    assert {name: variables(other)[name] for name in shared} == {name: given[name] for name in shared}
    host, _, port = given["KBQA_TRAINING_RENDEZVOUS"].rpartition(":")
    [service] = [s for s in of_kind(objects, "Service") if s["metadata"]["name"] == host]
    assert service["spec"]["clusterIP"] == "None"
    assert selects(service["spec"]["selector"], trainer.labels)
    assert trainer.ports["rendezvous"] == int(port)

    # The index of a pod is the rank of its node: 1, 2 ...; the trainer's is 0.
    [nodes] = [s for s in of_kind(objects, "StatefulSet") if title(s) == node.owner]
    assert nodes["spec"]["ordinals"]["start"] == 1
    assert nodes["spec"]["replicas"] == int(given["KBQA_TRAINING_NODES"]) - 1
    [rank] = [v for v in other["env"] if v["name"] == "KBQA_TRAINING_NODE_RANK"]
    assert "pod-index" in rank["valueFrom"]["fieldRef"]["fieldPath"]
    assert "KBQA_TRAINING_NODE_RANK" not in given
    for name, value in {**variables(other), "KBQA_TRAINING_NODE_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert TrainerSettings.load().node_rank == 1


def test_beside_several_nodes_vllm_has_model_and_context_of_the_recipe(chart):
    recipe = load_recipe("kbqa-r1")
    engines = [c for pod in pods(chart("multi-node")) for c in pod.containers if c["name"] == "vllm"]
    assert len(engines) == 2
    for engine in engines:
        assert engine["command"][2] == recipe.base_model
        assert f"--max-model-len={recipe.rollout.max_tokens}" in engine["args"]


@each_scenario
def test_jobs_set_only_variables_that_commands_read(chart, scenario):
    for pod in pods(chart(scenario)):
        for container in pod.containers:
            if service_of(container) is None:
                ours = {v["name"] for v in container.get("env", ()) if v["name"].startswith("KBQA_")}
                trains = "services.trainer.launch" in container.get("command", ())
                known = {*variables_of(TrainerSettings).values()} if trains else set()
                assert ours <= known | SHARED_VARIABLES, pod.owner


@each_scenario
def test_ports_and_probes_are_the_services_own(chart, scenario):
    app = FastAPI()
    install(app, service="any", metrics=Metrics(CollectorRegistry()), readiness=lambda: None, errors={})
    paths = {route.path for route in app.routes}
    for _, container, service in services(chart(scenario)):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        fields = BY_SERVICE[service].model_fields
        known = {fields[name].default for name in ("port", "operations_port") if name in fields}
        met_at = variables(container).get("KBQA_TRAINING_RENDEZVOUS", "").rpartition(":")[2]
        assert set(ports.values()) <= known | {int(met_at or fields["port"].default)}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["path"] in paths
            assert ports[asked["port"]] == fields["port"].default


@each_scenario
def test_pods_outlive_their_drain(chart, scenario):
    for pod, container, service in services(chart(scenario)):
        drain = int(variables(container)[f"KBQA_{service.upper()}_DRAIN_S"])
        assert pod.spec["terminationGracePeriodSeconds"] >= drain + 10


@each_scenario
def test_commands_exist_with_their_options(chart, scenario):
    for arguments in commands(chart(scenario)):
        command = typer.main.get_command(create_cli())
        context = click.Context(command, info_name="kbqa")
        rest = list(arguments)
        while isinstance(command, click.Group) or hasattr(command, "commands"):
            name, rest = rest[0], rest[1:]
            command = command.get_command(context, name)
            assert command is not None, arguments
        if "serve" not in arguments:
            command.make_context(arguments[-1], rest, parent=context)


@pytest.mark.parametrize(
    ("scenario", "base"),
    [
        ("default", "Qwen/Qwen2.5-3B-Instruct"),
        ("multi-gpu", "Qwen/Qwen2.5-3B-Instruct"),
        ("multi-node", "meta-llama/Llama-3.1-8B-Instruct"),
        ("cpu-small", "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_the_first_run_is_a_recipe(chart, scenario, base):
    [order] = [c for c in commands(chart(scenario)) if c[:2] == ["runs", "begin"]]
    pairs = [order[i + 1] for i, word in enumerate(order) if word == "--set"]
    recipe = load_recipe(order[order.index("--recipe") + 1], read_pairs("--set", pairs))
    assert recipe.base_model == base
    if scenario == "multi-node":  # a new volume has no demonstrations
        assert recipe.cold_start is None
    assert recipe.judge.name == ("chat" if scenario == "multi-gpu" else "matching")


def test_keys_of_kg_server_reach_who_asks_it(chart):
    for _, container, service in services(chart("multi-gpu")):
        wanted = "KBQA_KG_SERVER_API_KEYS" if service == "kg_server" else "KBQA_KG_SERVER_API_KEY"
        [source] = [v["valueFrom"]["secretKeyRef"] for v in container["env"] if v["name"] == wanted]
        assert source["name"] == "kg-server-keys"


def test_services_and_the_first_run_send_the_generated_key_that_is_required(chart):
    objects = chart()
    [secret] = [s for s in of_kind(objects, "Secret") if "api-key" in s["stringData"]]
    found = {
        (container["name"], variable["name"]): variable["valueFrom"]["secretKeyRef"]
        for pod in pods(objects)
        for container in pod.containers
        for variable in container.get("env", ())
        if re.fullmatch("KBQA_(KG_SERVER|TRAINER)_API_KEYS?", variable["name"])
    }
    asked = {("kg-server", "KBQA_KG_SERVER_API_KEYS"), ("trainer", "KBQA_TRAINER_API_KEYS")}
    askers = {
        *((name, "KBQA_KG_SERVER_API_KEY") for name in ("rollout-worker", "trainer", "gateway", "begin")),
        *((name, "KBQA_TRAINER_API_KEY") for name in ("trainer", "begin")),
    }
    assert found == dict.fromkeys(asked | askers, {"name": secret["metadata"]["name"], "key": "api-key"})


def test_keys_of_the_gateway_come_from_a_secret_and_helm_test_has_one(chart):
    objects = chart("multi-gpu")
    [(pod, container)] = [(p, c) for p, c, service in services(objects) if service == "gateway"]
    given = variables(container)
    [mount] = [m for m in container["volumeMounts"] if m["name"] == "keys"]
    [volume] = [v for v in pod.spec["volumes"] if v["name"] == "keys"]
    [item] = volume["secret"]["items"]
    assert volume["secret"]["secretName"] == "gateway-keys"
    assert given["KBQA_GATEWAY_KEYS_FILE"] == f"{mount['mountPath']}/{item['path']}"
    assert given["KBQA_GATEWAY_REQUIRE_KEYS"] == "true"
    [test] = [o for o in objects if o["kind"] == "Pod"]
    [source] = [
        v["valueFrom"]["secretKeyRef"]
        for v in test["spec"]["containers"][0]["env"]
        if v["name"] == "KBQA_GATEWAY_API_KEY"
    ]
    assert source == {"name": "gateway-keys", "key": "api-key"}


def test_policies_lie_where_engine_and_service_find_them(chart):
    """vLLM is told a path by its service, so both see the same files under it."""
    for scenario in ("default", "s3"):
        for pod in pods(chart(scenario)):
            mounts = {
                c["name"]: {m["mountPath"]: m["name"] for m in c["volumeMounts"]} for c in pod.containers
            }
            if "vllm" not in mounts:
                continue
            own = mounts[component(pod)]
            path = "/policies" if scenario == "default" else "/var/lib/kbqa"
            assert mounts["vllm"][path] == own[path]


@each_scenario
def test_a_run_that_starts_by_itself_finds_its_graph_its_engine_and_its_context(scenario):
    values = merged(defaults(), values_of(scenario))
    start = values["trainer"]["autoStart"]
    if not (values["trainer"]["enabled"] and start["enabled"]):
        return
    recipe = load_recipe(start["recipe"], start["overrides"])
    # Published data sets are named after their graph; the generated world is the graph "world".
    assert values["graph"]["name"] == start["dataset"].partition("-")[0]
    if values["rolloutWorker"]["engine"] == "sidecar":
        adapter = recipe.optimisation.lora
        assert values["vllm"]["lora"]["enabled"] == (adapter is not None)
        # 0 takes the recipe's own, or 8192 if that is less.
        assert (values["vllm"]["maxModelLen"] or recipe.rollout.max_tokens) >= recipe.rollout.max_tokens
    trainer = values["trainer"]
    if trainer["gpus"]:
        # The first of several processes holds all weights in fp32 on the host; while a checkpoint is written,
        # each node holds a copy of its part of weights and moments. The name says how many billions.
        billions = float(re.search(r"-(\d+(?:\.\d+)?)B", values["model"]["name"] or recipe.base_model)[1])
        whole = 4 * billions if trainer["gpus"] * trainer["nodes"] > 1 else 0
        needed = host_for(int((whole + 12 * billions / trainer["nodes"]) * 1e9))
        assert int(trainer["resources"]["limits"]["memory"].removesuffix("Gi")) * GIB >= needed


def test_alerts_ask_for_metrics_that_are_exported(chart):
    [rules] = of_kind(chart("multi-gpu"), "PrometheusRule")
    known = {metric.name for metric in METRICS}
    for rule in rules["spec"]["groups"][0]["rules"]:
        asked = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bkbqa_[a-z0-9_]+", rule["expr"])}
        assert asked
        assert asked <= known


def test_dashboards_go_into_the_folder_that_is_named(chart):
    def annotations(**values):
        maps = of_kind(chart(monitoring={"dashboards": {"enabled": True, **values}}), "ConfigMap")
        return {board["metadata"]["name"]: board["metadata"].get("annotations") for board in maps}

    usual = annotations()
    assert usual == dict.fromkeys(usual)
    assert annotations(folder="Answers") == dict.fromkeys(usual, {"k8s-sidecar-target-directory": "Answers"})
    other = annotations(folder="Answers", folderAnnotation="grafana_folder")
    assert other == dict.fromkeys(usual, {"grafana_folder": "Answers"})


def test_dashboards_of_two_releases_replace_none_of_each_other(chart):
    """Grafana's sidecar writes the files of all releases into one folder."""

    def files_and_ids(release):
        maps = of_kind(
            chart(fullnameOverride=release, monitoring={"dashboards": {"enabled": True}}), "ConfigMap"
        )
        files = {name: json.loads(text) for board in maps for name, text in board["data"].items()}
        return files.keys(), {document["uid"] for document in files.values()}

    for one, other in zip(files_and_ids("films"), files_and_ids("songs"), strict=True):
        assert len(one) == len(other) == 6
        assert one.isdisjoint(other)


def checksums(objects):
    """Of the secrets that pods were made with."""
    workloads = [found for found in objects if found["kind"] in ("Deployment", "StatefulSet")]
    return {w["spec"]["template"]["metadata"]["annotations"]["checksum/secrets"] for w in workloads}


def test_pods_roll_with_the_password_and_each_installation_has_its_own(chart):
    one, other = checksums(chart()), checksums(chart(commonLabels={"team": "answers"}))
    assert len(one) == len(other) == 1
    assert one != other


def test_pods_roll_with_the_key_that_the_chart_generates(chart):
    def digest(text):
        return hashlib.sha256(text.encode()).hexdigest()

    objects = chart(redis={"existingSecret": "redis"})
    [secret] = of_kind(objects, "Secret")
    assert checksums(objects) == {digest(f" {secret['stringData']['api-key']}")}
    off = {"enabled": False}
    outside = chart(
        kgServer={**off, "externalUrl": "http://kg:8001"}, trainer=off, redis={"existingSecret": "r"}
    )
    assert of_kind(outside, "Secret") == []
    assert checksums(outside) == {digest(" ")}


@each_scenario
def test_notes_say_what_runs(scenario):
    [notes] = [t for path, t in manifests_of(values_of(scenario)).items() if path.endswith("NOTES.txt")]
    assert ("helm -n answers test kbqa" in notes) == (scenario != "everything-off")
    assert "<no value>" not in notes


@each_scenario
def test_notes_say_whom_the_gateway_answers(scenario):
    gateway = merged(defaults(), values_of(scenario))["gateway"]
    [notes] = [t for path, t in manifests_of(values_of(scenario)).items() if path.endswith("NOTES.txt")]
    answers_all = gateway["enabled"] and not gateway["auth"]["enabled"]
    assert ("It answers everybody who can reach it" in notes) == answers_all
    assert ("Authorization: Bearer $KEY" in notes) == gateway["auth"]["enabled"]


def test_an_old_cluster_does_without_budgets(chart):
    budgets = {"kg-server", "rollout-worker", "trainer", "gateway", "redis"}  # and no cache of its own
    found = of_kind(chart("cpu-small"), "PodDisruptionBudget")
    assert {budget["metadata"]["name"] for budget in found} == {f"kbqa-{name}" for name in budgets}
    assert of_kind(chart("cpu-small", disruptionBudgets=False), "PodDisruptionBudget") == []


def test_another_order_is_another_job(chart):
    def jobs(**values):
        return {title(job) for job in of_kind(chart(**values), "Job")}

    assert jobs() == jobs(gateway={"replicas": 1})
    assert len(jobs() & jobs(graph={"seed": 2})) == 0
    assert len(jobs() & jobs(trainer={"autoStart": {"recipe": "kg-r1-7b"}})) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"jobs": {"resources": {"limits": {"memory": "2Gi"}}}},
        {"jobs": {"tolerations": [{"operator": "Exists"}]}},
        {"image": {"pullPolicy": "Always"}},
        {"imagePullSecrets": ["registry"]},
        {"commonLabels": {"team": "answers"}},
        {"kgServer": {"auth": {"enabled": True, "existingSecret": "keys"}}},
        {"nameOverride": "other"},
    ],
)
def test_jobs_whose_pods_differ_differ_in_name(chart, values):
    """Kubernetes refuses to change a job's pods, and an upgrade would end there."""

    def by_name(objects):
        return {title(job): job["spec"]["template"] for job in of_kind(objects, "Job")}

    before, after = by_name(chart()), by_name(chart(**values))
    assert before != after
    for name in before.keys() & after.keys():
        assert before[name] == after[name]
