"""What the chart's values make of its pods: images, users, secrets, scaling, and what a user adds."""

from __future__ import annotations

import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kbqa.planning.architectures import PUBLISHED, REVISIONS
from kbqa.policy_store import shelves
from kbqa.telemetry.table import METRICS
from kbqa.wire import ROLLOUTS
from services.broker import create_celery
from services.rollout_worker.settings import RolloutWorkerSettings
from services.trainer.depths import STATES
from tests.deploy.conftest import ALL
from tests.deploy.helm import CHART, defaults, helm_error
from tests.deploy.objects import component, of_kind, pods, selects, service_of, services, title, variables

pytestmark = pytest.mark.chart


def test_images_with_torch_say_which_build(chart):
    def tags(objects):
        return {
            container["name"]: container["image"].rpartition(":")[2]
            for pod in pods(objects)
            for container in pod.containers
            if service_of(container)
        }

    version = "0.1.0"
    cpu, cuda = f"{version}-cpu", f"{version}-cuda"
    assert tags(chart()) == {
        "kg-server": version,
        "rollout-worker": cpu,
        "gateway": cpu,
        "trainer": cuda,
    }
    assert tags(chart("cpu-small"))["trainer"] == cpu
    given = chart(image={"tag": "7"}, gateway={"image": {"tag": "own"}})
    assert tags(given) == {"kg-server": "7", "rollout-worker": "7-cpu", "gateway": "own", "trainer": "7-cuda"}


def test_a_registry_and_pull_secrets_of_the_parent_chart_serve_every_image(chart):
    objects = chart(**{"global": {"imageRegistry": "r.example.org", "imagePullSecrets": ["parent"]}})
    for pod in pods(objects):
        assert pod.spec["imagePullSecrets"] == [{"name": "parent"}]
        assert all(container["image"].startswith("r.example.org/") for container in pod.containers)


def test_on_openshift_the_platform_chooses_the_user(chart):
    for pod in pods(chart(podUser="assigned")):
        assert {"runAsUser", "runAsGroup", "fsGroup"}.isdisjoint(pod.spec["securityContext"])
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
    assert all(pod.spec["securityContext"]["runAsUser"] == 10001 for pod in pods(chart()))


def test_on_a_single_node_every_pod_goes_where_the_others_are(chart):
    for pod in pods(chart("cpu-small")):
        [term] = pod.spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert selects(term["labelSelector"]["matchLabels"], pod.labels)
        assert "topologySpreadConstraints" not in pod.spec


def test_what_a_user_adds_to_a_service_stands_in_its_pod(chart):
    added = {
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "envFrom": [{"secretRef": {"name": "own"}}],
        "extraVolumes": [{"name": "own", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "own", "mountPath": "/own"}],
        "initContainers": [{"name": "before", "image": "busybox"}],
        "podLabels": {"tier": "one"},
        "podAnnotations": {"note": "two"},
    }
    names = ("kgServer", "rolloutWorker", "trainer", "gateway")
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-own"}}
    objects = chart(**dict.fromkeys(names, added), podLabels={"team": "answers"}, extraObjects=[extra])
    served = list(services(objects))
    assert len(served) == len(names)
    for pod, container, _ in served:
        assert container["env"][-1] == added["extraEnv"][0]
        assert container["envFrom"] == added["envFrom"]
        assert added["extraVolumeMounts"][0] in container["volumeMounts"]
        assert added["extraVolumes"][0] in pod.spec["volumes"]
        assert added["initContainers"][0] in pod.spec["initContainers"]
        assert (pod.labels["tier"], pod.labels["team"]) == ("one", "answers")
    assert title(of_kind(objects, "ConfigMap")[0]) == "ConfigMap/kbqa-own"


def test_no_key_stands_in_clear_text(chart):
    secret = {"existingSecret": "keys"}
    objects = chart(
        "multi-gpu", gateway={"chat": secret, "settings": {"CHAT_URL": "https://llm.example.com"}}
    )
    wanted = {"KBQA_GATEWAY_CHAT_API_KEY", "WANDB_API_KEY", "OPENAI_API_KEY", "KBQA_KG_SERVER_API_KEY"}
    found = {}
    for pod in pods(objects):
        for container in pod.containers:
            for variable in container.get("env", ()):
                if (
                    re.search("KEY|TOKEN|PASSWORD|SECRET", variable["name"])
                    and "KEYS" not in variable["name"]
                ):
                    found[variable["name"]] = variable
    assert wanted <= found.keys()
    assert all("value" not in variable for variable in found.values())


def test_traces_proxy_and_certificates_reach_every_service(chart):
    objects = chart("multi-gpu", tracing={"url": "http://collector.observability.svc:4318"})
    for pod, container, _ in services(objects):
        given = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert given["KBQA_TRACES_URL"] == "http://collector.observability.svc:4318"
        assert given["HTTPS_PROXY"] == given["https_proxy"] == "http://proxy.example.com:3128"
        assert "kbqa-kg-server" in given["NO_PROXY"].split(",")
        [mount] = [m for m in container["volumeMounts"] if m["name"] == "certificates"]
        assert given["SSL_CERT_FILE"] == f"{mount['mountPath']}/ca.crt"
        assert {"name": "certificates", "configMap": {"name": "company-ca"}} in pod.spec["volumes"]


def test_what_downloads_knows_the_proxy_and_the_certificates(chart):
    downloads = [
        (component(pod), container)
        for pod in pods(chart("multi-gpu"))
        for container in pod.containers
        if container["name"] in ("model", "load", "download")
    ]
    assert {(owner, container["name"]) for owner, container in downloads} == {
        *((owner, "model") for owner in ("rollout-worker", "trainer", "gateway")),
        *(("jobs", name) for name in ("load", "download")),
    }
    for _, container in downloads:
        given = variables(container)
        assert given["HTTPS_PROXY"] == given["https_proxy"] == "http://proxy.example.com:3128"
        [mount] = [m for m in container["volumeMounts"] if m["name"] == "certificates"]
        assert given["SSL_CERT_FILE"] == f"{mount['mountPath']}/ca.crt"


def test_a_model_that_is_on_its_volume_is_asked_of_no_hub(chart):
    def asks_no_hub(objects):
        fetching = [c for pod in pods(objects) for c in pod.containers if c["name"] == "model"]
        assert len(fetching) == 3
        return {variables(container).get("HF_HUB_OFFLINE") for container in fetching}

    assert asks_no_hub(chart()) == {None}
    carried = {"offline": True, "persistence": {"existingClaim": "models"}}
    assert asks_no_hub(chart(model=carried)) == {"1"}


def test_metrics_keep_their_labels_and_no_path_is_scraped_twice(chart):
    monitors = of_kind(chart("multi-gpu"), "PodMonitor")
    assert len({monitor["metadata"]["name"] for monitor in monitors}) == len(monitors) == 6
    assert all(len(monitor["spec"]["podMetricsEndpoints"]) == 1 for monitor in monitors)
    # A ServiceMonitor sets the label "service", which our metrics have.
    assert of_kind(chart("multi-gpu"), "ServiceMonitor") == []


def test_the_operations_port_is_in_no_service(chart):
    ports = {
        port["port"]
        for service in of_kind(chart("multi-gpu"), "Service")
        for port in service["spec"]["ports"]
    }
    assert ports == {80, 8001, 8003, 6379}


def test_cached_answers_cannot_fill_the_queues(chart):
    objects = chart()
    [server] = [c for _, c, service in services(objects) if service == "kg_server"]
    assert variables(server)["KBQA_REDIS_URL"].endswith("@kbqa-redis-cache:6379/0")
    others = [c for _, c, service in services(objects) if service != "kg_server"]
    assert all(variables(c)["KBQA_REDIS_URL"].endswith("@kbqa-redis:6379/0") for c in others)
    policies = {
        component(pod): re.search("maxmemory-policy ([a-z-]+)", container["command"][2])[1]
        for pod in pods(objects)
        for container in pod.containers
        if container["name"] == "redis"
    }
    assert policies == {"redis": "noeviction", "redis-cache": "allkeys-lru"}


@pytest.mark.parametrize("scenario", ["default", "external-redis"])
def test_gateways_may_have_a_redis_for_themselves(chart, scenario):
    before, objects = chart(scenario), chart(scenario, redisGateway={"enabled": True})
    urls, others = (
        {
            c["name"]: variables(c)["KBQA_REDIS_URL"]
            for _, c, service in services(rendered)
            if service != "kg_server"
        }
        for rendered in (objects, before)
    )
    assert urls.pop("gateway").endswith("@kbqa-redis-gateway:6379/0")
    del others["gateway"]
    assert urls == others
    [server] = [pod for pod in pods(objects) if component(pod) == "redis-gateway"]
    assert "--appendonly yes" in server.containers[0]["command"][2]
    assert "--maxmemory-policy noeviction" in server.containers[0]["command"][2]
    claims = {claim["metadata"]["name"] for claim in of_kind(objects, "PersistentVolumeClaim")}
    assert "kbqa-redis-gateway" in claims
    assert "kbqa-redis" in {secret["metadata"]["name"] for secret in of_kind(objects, "Secret")}


@pytest.mark.parametrize("scenario", ["cpu-small", "external-redis"])
def test_without_a_redis_of_its_own_kg_server_caches_in_memory(chart, scenario):
    [server] = [c for _, c, service in services(chart(scenario)) if service == "kg_server"]
    assert {"KBQA_REDIS_URL", "REDIS_URL", "REDIS_PASSWORD"}.isdisjoint(variables(server))


@pytest.mark.parametrize(
    ("scenario", "sets"),
    [
        ("default", {"trainer", "redis", "redis-cache"}),
        ("multi-node", {"trainer", "training-node", "redis", "redis-cache", "redis-gateway"}),
    ],
)
def test_a_broken_pod_of_a_stateful_set_is_replaced_by_its_next_template(chart, scenario, sets):
    found = {
        s["metadata"]["name"]: s["spec"]["podManagementPolicy"]
        for s in of_kind(chart(scenario), "StatefulSet")
    }
    assert found == {f"kbqa-{name}": "Parallel" for name in sets}


def test_a_roll_out_may_take_as_long_as_the_model_takes_and_as_the_guide_waits(chart):
    guide = (CHART.parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
    [hours] = re.findall(r"rollout status .*--timeout (\d+)h", guide)
    deployments = of_kind(chart(), "Deployment")
    assert deployments
    for deployment in deployments:
        deadline = deployment["spec"]["progressDeadlineSeconds"]
        assert deadline > defaults()["vllm"]["startupSeconds"]
        assert deadline >= int(hours) * 3600


def test_a_gateway_leaves_its_gpu_to_the_next_one_unless_there_is_another(chart):
    def strategy(objects):
        [gateway] = [d for d in of_kind(objects, "Deployment") if title(d) == "Deployment/kbqa-gateway"]
        return gateway["spec"]["strategy"]

    assert strategy(chart()) == {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    spare = chart(gateway={"maxSurge": 1})
    assert strategy(spare) == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_workers_are_scaled_by_what_waits_and_what_they_are_busy_with(chart):
    [scaled] = of_kind(chart("multi-gpu"), "ScaledObject")
    spec, modifiers = scaled["spec"], scaled["spec"]["advanced"]["scalingModifiers"]
    asked = {trigger["name"]: trigger["metadata"]["listName"] for trigger in spec["triggers"]}
    assert asked == {"waiting": ROLLOUTS, "taken": taken_key(ROLLOUTS)}
    assert modifiers["formula"] == "waiting + taken"
    assert spec["minReplicaCount"] == 0
    # A full worker asks for another one: it plays more requests than the target.
    concurrency = RolloutWorkerSettings.model_fields["concurrency"].default
    assert int(modifiers["target"]) < concurrency
    [scaler] = of_kind(chart("external-kg"), "HorizontalPodAutoscaler")
    [external] = [metric["external"] for metric in scaler["spec"]["metrics"]]
    assert int(external["target"]["averageValue"]) < concurrency
    [known] = [metric for metric in METRICS if metric.name == external["metric"]["name"]]
    selector = external["metric"]["selector"]
    asked = {*selector["matchLabels"], *(e["key"] for e in selector["matchExpressions"])}
    assert asked == {*known.labels, "namespace"}
    [states] = [e["values"] for e in selector["matchExpressions"]]
    assert set(states) == set(STATES) - {"dead"}


def test_workers_are_kept_as_long_as_the_cool_down_says(chart):
    cooling = {"autoscaling": {"cooldownSeconds": 77}}
    [keda] = of_kind(chart("multi-gpu", rolloutWorker=cooling), "ScaledObject")
    [hpa] = of_kind(chart("external-kg", rolloutWorker=cooling), "HorizontalPodAutoscaler")
    assert keda["spec"]["cooldownPeriod"] == 77
    for spec in (keda["spec"]["advanced"]["horizontalPodAutoscalerConfig"], hpa["spec"]):
        assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 77


def test_releases_that_share_a_redis_share_no_queue(chart):
    def prefixes(objects):
        return {
            service: variables(c).get("KBQA_QUEUE_PREFIX")
            for _, c, service in services(objects)
            if service in ("trainer", "rollout_worker")
        }

    assert prefixes(chart()) == dict.fromkeys(("trainer", "rollout_worker"))  # its own Redis
    objects = chart("external-redis")
    assert prefixes(objects) == dict.fromkeys(("trainer", "rollout_worker"), "answers.kbqa:")
    [scaled] = of_kind(objects, "ScaledObject")
    asked = {trigger["name"]: trigger["metadata"]["listName"] for trigger in scaled["spec"]["triggers"]}
    assert asked == {"waiting": f"answers.kbqa:{ROLLOUTS}", "taken": f"answers.kbqa:{taken_key(ROLLOUTS)}"}
    chosen = chart("external-redis", externalRedis={"queuePrefix": "films:"})
    assert set(prefixes(chosen).values()) == {"films:"}


def test_keda_uses_tls_and_the_password_where_redis_does(chart):
    [scaled] = of_kind(chart("external-redis"), "ScaledObject")
    assert {trigger["metadata"]["enableTLS"] for trigger in scaled["spec"]["triggers"]} == {"true"}
    assert all(trigger["authenticationRef"]["name"] for trigger in scaled["spec"]["triggers"])
    [scaled] = of_kind(chart("multi-gpu"), "ScaledObject")
    assert {trigger["metadata"]["enableTLS"] for trigger in scaled["spec"]["triggers"]} == {"false"}


def test_keda_asks_the_sentinels_where_the_master_is(chart):
    sentinels = {
        "addresses": ["a.data.svc:26379", "b.data.svc:26379"],
        "master": "films",
        "servers": ["redis.data.svc:6379"],
        "passwordKey": "sentinels",
    }
    objects = chart("external-redis", externalRedis={"address": "", "sentinels": sentinels})
    [scaled] = of_kind(objects, "ScaledObject")
    assert {trigger["type"] for trigger in scaled["spec"]["triggers"]} == {"redis-sentinel"}
    asked = scaled["spec"]["triggers"][0]["metadata"]
    assert (asked["addresses"], asked["sentinelMaster"]) == ("a.data.svc:26379,b.data.svc:26379", "films")
    assert "address" not in asked
    [known] = of_kind(objects, "TriggerAuthentication")
    keys = {one["parameter"]: one["key"] for one in known["spec"]["secretTargetRef"]}
    assert keys == {"password": "password", "sentinelPassword": "sentinels"}


def taken_key(queue):
    """Where kombu keeps messages that consumers have taken from a queue."""
    options = create_celery("worker", "redis://127.0.0.1:1/0", consumes=queue).conf.broker_transport_options
    return options["unacked_key"]


def mebibytes(quantity):
    number, unit = re.fullmatch(r"([0-9.]+)([A-Z]i?)", quantity).groups()
    return float(number) * {"Mi": 1, "Gi": 2**10, "Ti": 2**20, "G": 1e9 / 2**20}[unit]


def disk(pod):
    """Sizes of a pod's volumes on the node's disk by name, in MiB; None for one without a bound."""
    empty = {v["name"]: v["emptyDir"] for v in pod.spec["volumes"] if "emptyDir" in v}
    return {
        name: mebibytes(size) if (size := volume.get("sizeLimit")) else None
        for name, volume in empty.items()
        if volume.get("medium") != "Memory"
    }


@pytest.mark.parametrize(
    "values", [{}, {"model": {"persistence": {"enabled": False}}}], ids=["claim", "disk"]
)
@pytest.mark.parametrize("scenario", ALL)
def test_pods_that_write_caches_declare_the_disk_that_they_may_fill(chart, scenario, values):
    for pod, container, service in services(chart(scenario, **values)):
        if service == "kg_server":
            continue
        on_disk, resources = disk(pod), container["resources"]
        fills = [
            size for name, size in on_disk.items() if name == "models" or (name == "home" and size > 2**13)
        ]
        assert mebibytes(resources["requests"]["ephemeral-storage"]) == sum(fills) + 1024
        assert mebibytes(resources["limits"]["ephemeral-storage"]) == sum(on_disk.values()) + 2048


def test_disk_without_a_bound_has_no_limit_and_a_users_own_figures_stay(chart):
    own = {"limits": {"ephemeral-storage": "5Gi"}, "requests": {"ephemeral-storage": "3Gi"}}
    objects = chart(trainer={"persistence": {"enabled": False}}, gateway={"resources": own})
    found = {service: container["resources"] for _, container, service in services(objects)}
    assert "ephemeral-storage" not in found["trainer"]["limits"]
    assert {key: found["gateway"][key]["ephemeral-storage"] for key in own} == {
        "limits": "5Gi",
        "requests": "3Gi",
    }


@pytest.mark.parametrize(("kind", "quantity"), [("limits", "999Mi"), ("limits", 2**20), ("requests", "2Pi")])
def test_a_users_figure_that_kubernetes_would_refuse_beside_ours_is_refused_here(chart, kind, quantity):
    own = {kind: {"ephemeral-storage": quantity}}
    with pytest.raises(helm_error(), match=r"gateway/deployment.*set both, or lower"):
        chart(gateway={"resources": own})


@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_a_user_may_give_storage_in_bytes(chart, kind):
    objects = chart(gateway={"resources": {kind: {"ephemeral-storage": 2**33}}})
    [gateway] = [found["resources"] for _, found, service in services(objects) if service == "gateway"]
    assert float(gateway[kind]["ephemeral-storage"]) == 2**33


@pytest.mark.parametrize(
    "base", [base for base in PUBLISHED if base != "HuggingFaceTB/SmolLM2-135M-Instruct"]
)
def test_the_cache_of_a_bucket_has_room_for_the_versions_that_a_pod_keeps(base):
    """Those kept, one that is being pulled, and one more that was used just before."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**PUBLISHED[base]))
    version = 2 * model.num_parameters() / 2**20  # bf16
    assert (shelves._CACHED_VERSIONS + 2) * version < mebibytes(defaults()["policyStore"]["s3"]["cacheSize"])


def revisions(objects):
    """The commit of the model by pod and container: what is downloaded, served by vLLM, found by services."""
    found = {}
    for pod in pods(objects):
        for container in pod.containers:
            words = [*container.get("command", ()), *container.get("args", ())]
            joined = " ".join(words).replace("--revision=", "--revision ")
            if words[:2] in (["hf", "download"], ["vllm", "serve"]):
                at = re.search(r"--revision (\S+)", joined)
                found[component(pod), container["name"]] = at and at[1]
            elif "HF_HOME" in variables(container):
                found[component(pod), container["name"]] = variables(container).get("KBQA_BASE_REVISION")
    return found


def test_everything_in_a_release_uses_the_same_commit_of_the_model(chart):
    by_default = revisions(chart())
    assert {name for _, name in by_default} >= {"model", "vllm", "trainer"}
    assert set(by_default.values()) == {REVISIONS["Qwen/Qwen2.5-3B-Instruct"]}
    assert set(revisions(chart(model={"revision": "5" * 40})).values()) == {"5" * 40}
    assert set(revisions(chart(model={"name": "somebody/else"})).values()) == {None}


def test_links_to_runbooks_begin_with_the_url_that_is_named(chart):
    rules = {"enabled": True, "runbooks": "https://docs.example.org/operations.html"}
    (found,) = of_kind(chart(monitoring={"rules": rules}), "PrometheusRule")
    for rule in found["spec"]["groups"][0]["rules"]:
        url = rule["annotations"]["runbook_url"]
        assert url == f"https://docs.example.org/operations.html#{rule['alert'].lower()}"
