"""What must hold of every rendered chart, beyond what Kubernetes' schemas say.

`problems(objects, values)` lists what is wrong, a line each. Custom resources have no published
model in pip: `_CUSTOM` writes down the fields that the chart uses, with their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.deploy.objects import Object, Pod, names, of_kind, pods, selects, service_of, title

VERSIONS = ("1.29", "1.33", "1.37")

# kind → apiVersion, and the paths below spec that must be there, with their types. From the CRDs of
# KEDA 2, the Prometheus operator (v1) and the Gateway API (v1).
_CUSTOM: dict[str, tuple[str, dict[str, type | tuple[type, ...]]]] = {
    "ScaledObject": (
        "keda.sh/v1alpha1",
        {
            "scaleTargetRef.name": str,
            "minReplicaCount": int,
            "maxReplicaCount": int,
            "cooldownPeriod": int,
            "advanced.scalingModifiers.formula": str,
            "advanced.scalingModifiers.target": str,
            "advanced.scalingModifiers.metricType": str,
            "advanced.horizontalPodAutoscalerConfig.behavior.scaleDown.stabilizationWindowSeconds": int,
            "triggers.0.name": str,
            "triggers.0.type": str,
            "triggers.0.metadata.address": str,
            "triggers.0.metadata.listName": str,
            "triggers.0.metadata.listLength": str,
            "triggers.0.metadata.enableTLS": str,
        },
    ),
    "TriggerAuthentication": (
        "keda.sh/v1alpha1",
        {
            "secretTargetRef.0.parameter": str,
            "secretTargetRef.0.name": str,
            "secretTargetRef.0.key": str,
        },
    ),
    "PodMonitor": (
        "monitoring.coreos.com/v1",
        {
            "selector.matchLabels": dict,
            "podMetricsEndpoints.0.port": str,
            "podMetricsEndpoints.0.path": str,
            "podMetricsEndpoints.0.interval": str,
        },
    ),
    "PrometheusRule": (
        "monitoring.coreos.com/v1",
        {"groups.0.name": str, "groups.0.rules.0.alert": str, "groups.0.rules.0.expr": str},
    ),
    "HTTPRoute": (
        "gateway.networking.k8s.io/v1",
        {
            "parentRefs.0.name": str,
            "rules.0.matches.0.path.type": str,
            "rules.0.backendRefs.0.name": str,
            "rules.0.backendRefs.0.port": int,
        },
    ),
}
_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret", "downwardAPI", "csi"}


def problems(objects: list[Object], values: Object, versions: Sequence[str] = VERSIONS) -> list[str]:
    """What is wrong with a chart rendered with these values (the chart's own below them).

    Args:
        versions: of Kubernetes, whose schemas the objects have to fit.
    """
    found = [*_schemas(objects, versions), *_references(objects, values), *_selectors(objects)]
    for pod in pods(objects):
        found += [f"{pod.owner}: {problem}" for problem in (*_pod_security(pod), *_ports(pod))]
    return found


def _schemas(objects: list[Object], versions: Sequence[str]) -> Iterator[str]:
    import kubernetes_validate

    for item in objects:
        if item["kind"] in _CUSTOM:
            yield from _custom(item)
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{title(item)}: Kubernetes {version}: {error.message}"


def _custom(item: Object) -> Iterator[str]:
    version, fields = _CUSTOM[item["kind"]]
    if item["apiVersion"] != version:
        yield f"{title(item)}: apiVersion is {item['apiVersion']}, not {version}"
    for path, kind in fields.items():
        value: Any = item["spec"]
        try:
            for step in path.split("."):
                value = value[int(step)] if step.isdigit() else value[step]
        except (KeyError, IndexError, TypeError):
            yield f"{title(item)}: spec.{path} is missing"
            continue
        if not isinstance(value, kind):
            yield f"{title(item)}: spec.{path} is a {type(value).__name__}"
    known = {path.split(".")[0] for path in fields} | {"hostnames"}
    for key in item["spec"].keys() - known:
        yield f"{title(item)}: spec.{key} is not known"


def _given(values: Any, keys: frozenset[str]) -> Iterator[str]:
    """Names that the user says exist: the values of `keys`, wherever they stand."""
    if isinstance(values, dict):
        for key, value in values.items():
            if key in keys and isinstance(value, str):
                yield value
            yield from _given(value, keys)


def _references(objects: list[Object], values: Object) -> Iterator[str]:
    """Secrets, claims, ConfigMaps and service accounts that nothing makes and nobody has named."""
    secrets = names(objects, "Secret") | set(_given(values, frozenset({"existingSecret", "tlsSecret"})))
    claims = names(objects, "PersistentVolumeClaim") | set(_given(values, frozenset({"existingClaim"})))
    maps = names(objects, "ConfigMap") | set(_given(values, frozenset({"configMap"})))
    own = {s["metadata"]["name"]: s.get("stringData", {}) for s in of_kind(objects, "Secret")}
    for pod in pods(objects):
        if pod.spec["serviceAccountName"] not in names(objects, "ServiceAccount"):
            yield f"{pod.owner}: no ServiceAccount {pod.spec['serviceAccountName']}"
        for container in pod.containers:
            for variable in container.get("env", ()):
                source = variable.get("valueFrom", {}).get("secretKeyRef")
                if source is None:
                    continue
                if source["name"] not in secrets:
                    yield f"{pod.owner}: no Secret {source['name']}"
                elif source["name"] in own and source["key"] not in own[source["name"]]:
                    yield f"{pod.owner}: Secret {source['name']} has no key {source['key']}"
        mounted = {m["name"] for c in pod.containers for m in c.get("volumeMounts", ())}
        volumes = {v["name"]: v for v in pod.spec.get("volumes", ())}
        if mounted != volumes.keys():
            yield f"{pod.owner}: volumes and mounts differ: {sorted(mounted ^ volumes.keys())}"
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is not None and claim not in claims:
                yield f"{pod.owner}: no claim {claim}"
            config = volume.get("configMap", {}).get("name")
            if config is not None and config not in maps:
                yield f"{pod.owner}: no ConfigMap {config}"


def _selectors(objects: list[Object]) -> Iterator[str]:
    """Services, budgets, monitors, scalers and routes that point at nothing."""
    templates = list(pods(objects))
    workloads = {title(o) for o in objects if o["kind"] in ("Deployment", "StatefulSet")}
    services = {s["metadata"]["name"]: s for s in of_kind(objects, "Service")}
    for item in objects:
        kind, spec = item["kind"], item.get("spec", {})
        if kind in ("Deployment", "StatefulSet"):
            labels = spec["template"]["metadata"]["labels"]
            if not selects(spec["selector"]["matchLabels"], labels):
                yield f"{title(item)}: does not select its own pods"
        if kind in ("Service", "PodDisruptionBudget", "PodMonitor"):
            selector = spec["selector"] if kind == "Service" else spec["selector"]["matchLabels"]
            chosen = [pod for pod in templates if selects(selector, pod.labels)]
            if len({pod.owner for pod in chosen}) != 1:
                yield f"{title(item)}: selects {[pod.owner for pod in chosen]}, not one workload"
                continue
            asked = [p["targetPort"] for p in spec["ports"]] if kind == "Service" else []
            asked += [e["port"] for e in spec.get("podMetricsEndpoints", ())]
            for port in asked:
                if port not in chosen[0].ports:
                    yield f"{title(item)}: {chosen[0].owner} has no port named {port}"
        if kind == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            if f"{target['kind']}/{target['name']}" not in workloads:
                yield f"{title(item)}: scales nothing"
        if kind == "ScaledObject" and f"Deployment/{spec['scaleTargetRef']['name']}" not in workloads:
            yield f"{title(item)}: scales nothing"
        if kind == "StatefulSet" and spec["serviceName"] not in services:
            yield f"{title(item)}: no Service {spec['serviceName']}"
        for name, port in _backends(item):
            known = services.get(name, {"spec": {"ports": ()}})["spec"]["ports"]
            if not any(port in (p["name"], p["port"]) for p in known):
                yield f"{title(item)}: no Service {name} with port {port}"


def _backends(item: Object) -> Iterator[tuple[str, str | int]]:
    if item["kind"] == "Ingress":
        for rule in item["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                yield service["name"], service["port"].get("name", service["port"].get("number"))
    if item["kind"] == "HTTPRoute":
        for rule in item["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                yield backend["name"], backend["port"]


def _pod_security(pod: Pod) -> Iterator[str]:
    """The restricted Pod Security Standard; beyond it a read-only root and no token."""
    spec = pod.spec
    if spec.get("automountServiceAccountToken") is not False:
        yield "mounts a token of the API server"
    if spec.get("enableServiceLinks") is not False:
        yield "has variables of Services, which our settings would read"
    for flag in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(flag):
            yield f"{flag} is set"
    for volume in spec.get("volumes", ()):
        if not volume.keys() - {"name"} <= _VOLUMES:
            yield f"volume {volume['name']} is of a kind that is not allowed"
    general = spec.get("securityContext", {})
    for container in pod.containers:
        own = container.get("securityContext", {})
        name = container["name"]
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            yield f"{name} may gain privileges"
        capabilities = own.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
            yield f"{name} keeps capabilities"
        if not own.get("runAsNonRoot", general.get("runAsNonRoot")) or general.get("runAsUser") == 0:
            yield f"{name} may run as root"
        profile = own.get("seccompProfile", general.get("seccompProfile", {}))
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{name} has no seccomp profile"
        if own.get("readOnlyRootFilesystem") is not True:
            yield f"{name} may write to its root file system"
        if not container.get("resources", {}).get("limits", {}).get("memory"):
            yield f"{name} has no limit of memory"


def _ports(pod: Pod) -> Iterator[str]:
    """Probes that ask a port without a name, or nothing at all; GPUs that are asked for twice."""
    for container in pod.containers:
        own = {p["name"] for p in container.get("ports", ())}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container.get(probe)
            if asked is None:
                if service_of(container) is not None:
                    yield f"{container['name']} has no {probe}"
            elif "httpGet" in asked and asked["httpGet"]["port"] not in own:
                yield f"{container['name']}: {probe} asks the port {asked['httpGet']['port']}, which it lacks"
