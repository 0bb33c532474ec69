"""What is wrong is found: in values by schema and guards, in objects by the checks."""

from __future__ import annotations

import pytest

from tests.deploy.checks import VERSIONS, problems
from tests.deploy.helm import defaults, helm_error, lint
from tests.deploy.objects import of_kind

pytestmark = pytest.mark.chart


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"gateway": {"replicas": "two"}}, "got string, want integer"),
        ({"gateway": {"replica": 2}}, "additional properties 'replica' not allowed"),
        ({"gatewey": {}}, "additional properties 'gatewey' not allowed"),
        ({"kgServer": {"settings": {"QUERY_DEADLIN_S": 3}}}, "'QUERY_DEADLIN_S' not allowed"),
        ({"gateway": {"settings": {"HOST": "::"}}}, "'HOST' not allowed"),
        ({"gateway": {"image": {"digest": "latest"}}}, "does not match pattern"),
        ({"gateway": {"engine": "vllm"}}, "value must be one of"),
        ({"gateway": {"settings": {"CHAT_API_KEY": "clear"}}}, "'CHAT_API_KEY' not allowed"),
        ({"networkPolicy": {"destinations": {"s3": []}}}, "'s3' not allowed"),
    ],
)
def test_values_that_do_not_fit_the_schema(chart, values, complaint):
    with pytest.raises(helm_error(), match="kbqa:") as refused:
        chart(**values)
    assert complaint in str(refused.value)
    assert any(complaint in found for found in lint(values, "1.33"))


GRAPH_ON_NODE = {"persistence": {"enabled": False}}


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"kgServer": {"auth": {"enabled": True}}}, "kgServer.auth.existingSecret"),
        ({"gateway": {"auth": {"enabled": True}}}, "gateway.auth.existingSecret"),
        ({"kgServer": {"enabled": False}}, "set kgServer.externalUrl"),
        ({"kgServer": {"externalUrl": "http://kg:8001"}}, "set one of them"),
        ({"redis": {"enabled": False}}, "externalRedis.existingSecret"),
        ({"externalRedis": {"existingSecret": "redis"}}, "set one of them"),
        (
            {"externalRedis": {"sentinels": {"master": "films", "addresses": ["a:1"]}}},
            "addresses, master and servers belong together",
        ),
        (
            {
                "externalRedis": {
                    "address": "b:1",
                    "sentinels": {"master": "films", "addresses": ["a:1"], "servers": ["b:1"]},
                }
            },
            "none in externalRedis.address",
        ),
        ({"policyStore": {"type": "s3"}}, "policyStore.s3.url"),
        ({"model": {"offline": True}}, "model.persistence.existingClaim"),
        ({"trainer": {"autoStart": {"recipe": "kg-r1-chooser"}}}, "set model.name"),
        ({"trainer": {"autoStart": {"recipe": "kg-r2"}}}, 'no recipe "kg-r2"'),
        (
            {"vllm": {"maxModelLen": 8192}, "trainer": {"autoStart": {"recipe": "kbqa-r1"}}},
            "set vllm.maxModelLen to 15360",
        ),
        ({"trainer": {"autoStart": {"recipe": "learning-to-refine"}}}, "vllm.lora.maxRank=64"),
        (
            {"vllm": {"lora": {"enabled": True}}, "trainer": {"autoStart": {"recipe": "learning-to-refine"}}},
            "vllm.lora.maxRank=64",
        ),
        ({"trainer": {"gpus": 8, "processes": 1}}, "leave processes at 0"),
        ({"trainer": {"nodes": 2}}, "trainer.persistence.accessModes"),
        ({"trainer": {"nodes": 2, "persistence": {"enabled": False}}}, "set trainer.persistence.enabled"),
        ({"singleNode": True, "trainer": {"nodes": 2}}, "set trainer.nodes=1"),
        ({"gateway": {"engine": "external"}}, "gateway.vllmUrl"),
        (
            {"gateway": {"engine": "external", "vllmUrl": "http://v:8000", "replicas": 2}},
            "one gateway changes",
        ),
        ({"gateway": {"vllmUrl": "http://v:8000"}}, "external alone"),
        ({"trainer": {"processes": 4}}, "trainer.gpus is 1"),
        ({"graph": {"name": "films", "source": "url"}}, "graph.url"),
        ({"graph": {"name": "films", "source": "endpoint"}}, "graph.endpoint.url"),
        ({"graph": {"name": "films"}}, "leave graph.name"),
        ({"graph": GRAPH_ON_NODE}, "kgServer.autoscaling.enabled=false"),
        ({"policyStore": {"persistence": {"accessModes": ["ReadWriteOnce"]}}}, "ReadWriteMany"),
        ({"rolloutWorker": {"autoscaling": {"minReplicas": 9}}}, "above maxReplicas"),
        ({"gateway": {"ingress": {"enabled": True}}}, "gateway.ingress.hosts"),
        ({"gateway": {"httpRoute": {"enabled": True}}}, "gateway.httpRoute.parentRefs"),
        ({"gateway": {"enabled": False, "ingress": {"enabled": True}}}, "set gateway.enabled"),
        ({"gateway": {"ingress": {"enabled": True, "hosts": ["kbqa.example.com"]}}}, "gateway.auth.enabled"),
        (
            {"gateway": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}},
            "gateway.auth.enabled",
        ),
        ({"gateway": {"service": {"type": "LoadBalancer"}}}, "gateway.service.type LoadBalancer"),
        (
            {
                "gateway": {
                    "auth": {"enabled": True, "existingSecret": "keys"},
                    "ingress": {"enabled": True, "hosts": ["kbqa.example.com"]},
                }
            },
            "gateway.ingress.tlsSecret",
        ),
        ({"rolloutWorker": {"autoscaling": {"type": "hpa", "minReplicas": 0}}}, "only type keda"),
        ({"rolloutWorker": {"autoscaling": {"type": "keda", "requestsPerPod": 33}}}, "plays 32 at a time"),
        (
            {"redis": {"enabled": False}, "externalRedis": {"existingSecret": "redis"}},
            "externalRedis.address",
        ),
        ({"trainer": {"settings": {"SINKS": "wandb"}}}, "trainer.wandb.existingSecret"),
        ({"gateway": {"extraEnv": [{"name": "HTTP_TOKEN", "value": "t"}]}}, "valueFrom.secretKeyRef"),
        ({"judge": {"model": "m"}}, "go together"),
        ({"trainer": {"autoStart": {"dataset": "metaqa-2hop"}}}, "trainer.data.existingClaim"),
        ({"trainer": {"autoStart": {"recipe": "isp-kgr"}}}, "demonstrations in cold_start/isp-kgr.jsonl"),
        (
            {"gateway": {"service": {"type": "NodePort"}}},
            "gateway.service.type NodePort: .*gateway.allowInsecure",
        ),
    ],
)
def test_values_that_contradict_each_other_say_what_to_change(chart, values, advice):
    with pytest.raises(helm_error(), match=advice):
        chart(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"trainer": {"autoStart": {"recipe": "isp-kgr", "coldStart": False}}},
        {"trainer": {"autoStart": {"recipe": "isp-kgr"}, "persistence": {"existingClaim": "runs"}}},
        {"trainer": {"autoStart": {"recipe": "isp-kgr", "enabled": False}}},
        {"gateway": {"service": {"type": "NodePort"}, "allowInsecure": True}},
    ],
)
def test_whoever_knows_better_says_so(chart, values):
    assert chart(**values)


def workload(objects, name):
    [found] = [
        o for o in objects if o["kind"] in ("Deployment", "StatefulSet") and o["metadata"]["name"] == name
    ]
    return found


def container(objects, name):
    return workload(objects, name)["spec"]["template"]["spec"]["containers"][0]


def missing_secret(objects):
    objects[:] = [o for o in objects if o["kind"] != "Secret"]


def missing_key(objects):
    of_kind(objects, "Secret")[0]["stringData"] = {"pass": "word"}


def privileged(objects):
    container(objects, "kbqa-gateway")["securityContext"]["privileged"] = True


def root_file_system(objects):
    container(objects, "kbqa-trainer")["securityContext"]["readOnlyRootFilesystem"] = False


def token(objects):
    del workload(objects, "kbqa-redis")["spec"]["template"]["spec"]["automountServiceAccountToken"]


def service_links(objects):
    del workload(objects, "kbqa-gateway")["spec"]["template"]["spec"]["enableServiceLinks"]


def host_path(objects):
    workload(objects, "kbqa-redis")["spec"]["template"]["spec"]["volumes"][0] = {
        "name": "data",
        "hostPath": {"path": "/"},
    }


def service_selector(objects):
    of_kind(objects, "Service")[0]["spec"]["selector"]["app.kubernetes.io/component"] = "gatewey"


def own_selector(objects):
    workload(objects, "kbqa-gateway")["spec"]["selector"]["matchLabels"]["tier"] = "front"


def unnamed_port(objects):
    container(objects, "kbqa-gateway")["ports"][0]["name"] = "web"


def unknown_field(objects):
    container(objects, "kbqa-gateway")["readinesProbe"] = {}


def wrong_type(objects):
    workload(objects, "kbqa-trainer")["spec"]["replicas"] = "one"


def unknown_claim(objects):
    objects[:] = [o for o in objects if o["kind"] != "PersistentVolumeClaim"]


def scaler_without_target(objects):
    of_kind(objects, "HorizontalPodAutoscaler")[0]["spec"]["scaleTargetRef"]["name"] = "kg"


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        (missing_secret, "no Secret kbqa-redis"),
        (missing_key, "has no key password"),
        (privileged, "gateway may gain privileges"),
        (root_file_system, "trainer may write to its root file system"),
        (token, "mounts a token"),
        (service_links, "variables of Services"),
        (host_path, "of a kind that is not allowed"),
        (service_selector, "not one workload"),
        (own_selector, "does not select its own pods"),
        (unnamed_port, "has no port named http"),
        (unknown_field, "readinesProbe"),
        (wrong_type, "'one' is not of type"),
        (unknown_claim, "no claim kbqa-policies"),
        (scaler_without_target, "scales nothing"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_objects_that_are_wrong_are_found(chart, plant, complaint):
    objects = chart()
    plant(objects)
    found = problems(objects, defaults(), versions=VERSIONS[-1:])
    assert any(complaint in problem for problem in found), found


def test_custom_resources_that_are_wrong_are_found(chart):
    objects = chart("multi-gpu")
    of_kind(objects, "ScaledObject")[0]["spec"]["maxReplicaCount"] = "16"
    of_kind(objects, "PodMonitor")[0]["spec"]["endpoint"] = []
    found = problems(objects, defaults(), versions=())
    assert any("spec.maxReplicaCount is a str" in problem for problem in found)
    assert any("spec.endpoint is not known" in problem for problem in found)
