"""Which pods of the chart may talk to whom, and to what outside of the release."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from tests.deploy.conftest import ALL
from tests.deploy.objects import component, of_kind, pods, selects

pytestmark = pytest.mark.chart

each_scenario = pytest.mark.parametrize("scenario", ALL)


def allowed(objects, source, target, port):
    """Whether a packet between the pods of two components passes both ends' policies."""

    def labels(name):
        return next(pod.labels for pod in pods(objects) if component(pod) == name)

    def passes(direction, pod, peer, peers):
        rules = [
            rule
            for policy in of_kind(objects, "NetworkPolicy")
            if selects(policy["spec"]["podSelector"]["matchLabels"], pod)
            for rule in policy["spec"].get(direction) or ()
        ]
        return any(
            any(p.get("port") == port for p in rule.get("ports", ({"port": port},)))
            and (
                peers not in rule
                or any(
                    selects(o["podSelector"]["matchLabels"], peer) for o in rule[peers] if "podSelector" in o
                )
            )
            for rule in rules
        )

    one, other = labels(source), labels(target)
    return passes("egress", one, other, "to") and passes("ingress", other, one, "from")


def reached(objects, name):
    """What a component's egress rules allow beyond the release: (address, port) of blocks, and namespaces."""
    labels = next(pod.labels for pod in pods(objects) if component(pod) == name)
    return [
        (peer, port["port"])
        for policy in of_kind(objects, "NetworkPolicy")
        if selects(policy["spec"]["podSelector"]["matchLabels"], labels)
        for rule in policy["spec"]["egress"] or ()
        for peer in rule["to"]
        for port in rule.get("ports", ())
        if "ipBlock" in peer or "namespaceSelector" in peer
    ]


@each_scenario
def test_nothing_reaches_the_metadata_of_the_cloud_or_the_api_server(chart, scenario):
    objects = chart(scenario)
    inside = [ip_address(text) for text in ("169.254.169.254", "10.96.0.1", "172.20.0.1", "fd00:ec2::254")]
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"]["egress"] or ():
            assert rule.get("to"), "a rule without peers allows every address"
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                for address in inside:
                    within = address in ip_network(block["cidr"])
                    assert not within or any(address in ip_network(e) for e in block["except"])


def test_each_component_reaches_the_destinations_that_it_needs_and_no_other(chart):
    def named(objects):
        parts = ("kg-server", "rollout-worker", "trainer", "gateway", "redis", "jobs")
        return {
            name: {
                (peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], port)
                if "namespaceSelector" in peer
                else (peer["ipBlock"]["cidr"], port)
                for peer, port in reached(objects, name)
            }
            - {("kube-system", 53), ("::/0", 443)}
            for name in parts
        }

    proxy, public = ("10.20.0.7/32", 3128), ("0.0.0.0/0", 443)
    found = named(chart("multi-gpu"))
    assert found["redis"] == set()
    assert found["kg-server"] == {("models", 8080), proxy}
    assert found["gateway"] == {public, proxy}  # the hub
    assert found["rollout-worker"] == {public, proxy, ("0.0.0.0/0", 8443), ("::/0", 8443)}  # hub and judge
    assert found["trainer"] == {public, proxy}  # hub and tracker
    assert named(chart("s3"))["rollout-worker"] == {public, ("data", 9000)}
    small = named(chart("cpu-small"))
    assert set().union(*small.values()) == set()
    carried = {"offline": True, "persistence": {"existingClaim": "models"}}
    assert named(chart(model=carried))["gateway"] == set()
    extra = [{"to": [{"ipBlock": {"cidr": "10.9.9.9/32"}}], "ports": [{"port": 443}]}]
    more = named(chart("cpu-small", networkPolicy={"extraEgress": {"trainer": extra}}))
    assert more == {**small, "trainer": {("10.9.9.9/32", 443)}}


def test_traces_reach_the_collector_and_come_from_services_alone(chart):
    def reaching(objects, names):
        collector = {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}
        return {
            name
            for name in names
            if any(
                peer.get("namespaceSelector") == collector and port == 4318
                for peer, port in reached(objects, name)
            )
        }

    served = {"rollout-worker", "trainer", "gateway"}
    assert reaching(chart("external-kg"), {*served, "redis", "jobs"}) == served
    traced = chart(tracing={"url": "http://collector.observability.svc:4318"})
    assert reaching(traced, {*served, "kg-server", "redis", "jobs"}) == {*served, "kg-server"}
    assert reaching(chart(), {*served, "kg-server"}) == set()


def test_nodes_that_train_together_reach_each_other_on_every_port_and_nothing_else(chart):
    objects = chart("multi-node")
    for source, target in (("trainer", "training-node"), ("training-node", "trainer")):
        assert allowed(objects, source, target, 29500)
        assert allowed(objects, source, target, 41234)
    assert allowed(objects, "training-node", "training-node", 41234)
    for target, port in (("redis", 6379), ("kg-server", 8001), ("gateway", 8080)):
        assert not allowed(objects, "training-node", target, port)
        assert not allowed(objects, target, "training-node", port)
    names = {
        (pair[0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], pair[1])
        for pair in reached(objects, "training-node")
    }
    assert names == {("kube-system", 53)}


def test_the_network_has_the_edges_that_are_named_and_no_other(chart):
    objects = chart()
    ports = {
        "kg-server": 8001,
        "rollout-worker": 8002,
        "trainer": 8003,
        "gateway": 8080,
        "redis": 6379,
        "redis-cache": 6379,
    }
    edges = {
        (source, target)
        for source in (*ports, "jobs")
        for target, port in ports.items()
        if allowed(objects, source, target, port)
    }
    assert edges == {
        ("gateway", "kg-server"),
        ("gateway", "redis"),
        ("rollout-worker", "kg-server"),
        ("trainer", "kg-server"),
        ("jobs", "kg-server"),
        ("kg-server", "redis-cache"),
        ("rollout-worker", "redis"),
        ("trainer", "redis"),
        ("jobs", "trainer"),
        ("jobs", "gateway"),
    }
    for pod in pods(objects):
        denying = [p for p in of_kind(objects, "NetworkPolicy") if p["metadata"]["name"].endswith("deny")]
        assert any(selects(p["spec"]["podSelector"]["matchLabels"], pod.labels) for p in denying), pod.owner


def test_the_queues_are_reached_only_by_those_who_use_them(chart):
    """Without a Redis of its own, too, kg_server keeps no answers there."""
    users = {"rollout-worker", "trainer", "gateway"}
    inside, outside = chart("cpu-small"), chart("external-redis")
    parts = {*users, "kg-server", "jobs"}
    assert {name for name in parts if allowed(inside, name, "redis", 6379)} == users
    reaching = {name for name in parts if any(port == 6380 for _, port in reached(outside, name))}
    assert reaching == users


def test_a_redis_of_the_gateways_is_reached_by_them_alone_and_they_reach_no_other(chart):
    inside, outside = (
        chart(scenario, redisGateway={"enabled": True}) for scenario in ("cpu-small", "external-redis")
    )
    parts = {"rollout-worker", "trainer", "gateway", "kg-server", "jobs"}
    for objects in (inside, outside):
        assert {name for name in parts if allowed(objects, name, "redis-gateway", 6379)} == {"gateway"}
    assert {name for name in parts if allowed(inside, name, "redis", 6379)} == {"rollout-worker", "trainer"}
    reaching = {name for name in parts if any(port == 6380 for _, port in reached(outside, name))}
    assert reaching == {"rollout-worker", "trainer"}


def test_sentinels_are_reached_by_those_who_use_the_queues(chart):
    sentinels = {
        "addresses": ["a.data.svc:26379", "10.1.2.3:26380"],
        "master": "films",
        "servers": ["10.1.2.4:6380", "10.1.2.5:6380"],
    }
    objects = chart("external-redis", externalRedis={"address": "", "sentinels": sentinels})
    servers = [peer for peer, port in reached(objects, "trainer") if port == 6380]
    assert [peer["ipBlock"]["cidr"] for peer in servers] == ["10.1.2.4/32", "10.1.2.5/32"]
    parts = {"rollout-worker", "trainer", "gateway", "kg-server", "jobs"}
    for wanted in (26379, 26380, 6380):
        reaching = {name for name in parts if any(port == wanted for _, port in reached(objects, name))}
        assert reaching == {"rollout-worker", "trainer", "gateway"}
