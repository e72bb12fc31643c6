"""The manifests and the chart: each object holds against the schema of Kubernetes, and the service starts as they say."""

import json
import os
import re
import subprocess

import helm_python as helm
import kubernetes_validate
import yaml
from support import Failed, ended_in_order, expect, free_port, get, plain_environment, run, service

KUBERNETES = "1.37"
MANIFESTS = "docs/deploy/kubernetes"
PATH = "/v1/resources/demo%3A%2F%2Fa"
CHART = "docs/deploy/helm/tidings"
# The values of the chart, by the name of the case.
CASES = {
    "default": {},
    "everything": {
        "ingress": {"enabled": True, "host": "bus.example", "tlsSecret": "bus", "className": "nginx", "annotations": {"a": "b"}},
        "serviceMonitor": {"enabled": True},
        "persistence": {"enabled": True, "storageClass": "fast", "size": "2Gi"},
        "allowedHosts": ["other.example"],
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "bus", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "service": {"type": "LoadBalancer", "port": 80},
    },
    "least": {"persistence": {"enabled": False}, "tokensSecret": "", "config": "[auth]\nanonymous = \"all\"\n"},
}
REFUSED = [
    {"image": {"tag": 7}},
    {"image": {"repository": ""}},
    {"ingress": {"enabled": True}},
    {"allowedHosts": ["http://bus.example"]},
    {"persistance": {"enabled": False}},
]  # fmt: skip


def objects_of(text):
    return [found for found in yaml.safe_load_all(text) if found is not None]


def validate(found):
    # The one kind of another project.
    if found["kind"] == "ServiceMonitor":
        expect(found["spec"]["endpoints"][0]["port"] == "metrics", "the monitor names no port of the Service")
        return
    kubernetes_validate.validate(found, KUBERNETES, strict=True)


def one(objects, kind):
    found = [each for each in objects if each["kind"] == kind]
    expect(len(found) == 1, f"{len(found)} objects of the kind {kind}")
    return found[0]


def agree(objects):
    """Names and labels by which the objects find each other."""
    pods = one(objects, "StatefulSet")["spec"]["template"]
    labels, pod = pods["metadata"]["labels"], pods["spec"]
    ports = {port["name"] for port in pod["containers"][0]["ports"]}
    for found in objects:
        if found["kind"] == "Service":
            expect(found["spec"]["selector"].items() <= labels.items(), "the Service selects no pod")
            expect({port["targetPort"] for port in found["spec"]["ports"]} <= ports, "the Service names a port that no container has")
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    volumes.update({claim["metadata"]["name"]: claim for claim in one(objects, "StatefulSet")["spec"].get("volumeClaimTemplates", [])})
    mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    expect(mounted == set(volumes), f"mounted are {mounted}, there are {set(volumes)}")
    configuration = one(objects, "ConfigMap")
    expect(volumes["config"]["configMap"]["name"] == configuration["metadata"]["name"], "the configuration is not mounted")
    expect(pod["enableServiceLinks"] is False and pod["securityContext"]["runAsNonRoot"], "the pod is not confined")


def start(objects, program, place):
    """The service as its container is started, with the ports and folders of this machine."""
    place.mkdir()
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    tokens = place / "tokens"
    secret = {}
    for name in ("publisher", "reader"):
        secret[name] = run(program, "token", "new", name, "--file", place / f"{name}.tokens").split()[0]
        if "tokens" in mounts:
            tokens.mkdir(exist_ok=True)
            os.rename(place / f"{name}.tokens", tokens / name)
    folders = {mounts["config"]: place, mounts["data"]: place / "data"}

    def here(text):
        for folder in sorted(folders, key=len, reverse=True):
            text = text.replace(folder, str(folders[folder]))
        return text

    configuration = one(objects, "ConfigMap")["data"]["tidings.toml"]
    (place / "tidings.toml").write_text(here(configuration))
    environment = {"POD_IP": "127.0.0.1", "POD_NAMESPACE": "space"}
    metrics = free_port()
    for variable in container["env"]:
        if "value" in variable:
            value = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], variable["value"])
            environment[variable["name"]] = here(value).replace("0.0.0.0:8808", "0.0.0.0:0").replace("0.0.0.0:9808", f"127.0.0.1:{metrics}")
    name = one(objects, "Service")["metadata"]["name"]
    command = [program, *[here(argument) for argument in container["args"]]]
    with service(command, place / "log", env={**plain_environment(), **environment}) as (started, port):
        # As the kubelet asks: by the address of the pod, which no configuration names.
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            status, _, body = get(port, path, {"Host": "10.1.2.3:8808"})
            expect(status == 200, f"{path}: {status} {body}")
        for host, expected in ((f"{name}:8808", 200), (f"{name}.space.svc.cluster.local", 200), ("evil.example", 403)):
            status, _, body = get(port, "/v1/resources", {"Host": host})
            expect(status == expected, f"Host {host}: {status} {body}")
        status, _, body = get(port, PATH, {"Host": name, "Content-Type": "text/plain"}, "PUT", b"one")
        expect(status == (403 if "tokens" in mounts else 201), f"without a token: {status} {body}")
        if "tokens" in mounts:
            bearer = {"Host": name, "Authorization": f"Bearer {secret['publisher']}", "Content-Type": "text/plain"}
            status, _, body = get(port, PATH, bearer, "PUT", b"one")
            expect(status == 201, f"the publisher may not publish: {status} {body}")
        status, _, body = get(metrics, "/metrics")
        expect(status == 200 and b"tidings_changes_total" in body, f"/metrics: {status}")
        ended_in_order(started)
    expect(("TIDINGS_STORE__DIR" in environment and environment["TIDINGS_STORE__DIR"] != "") == (place / "data/store").exists(), "the store is not where the claim is")


def manifests():
    """What `kubectl apply -k` applies: by kubectl where it is, else by the one generator and the labels that are used."""
    kustomization = objects_of(open(f"{MANIFESTS}/kustomization.yml").read())[0]
    objects = []
    for name in kustomization["resources"]:
        objects += objects_of(open(f"{MANIFESTS}/{name}").read())
    [generator] = kustomization["configMapGenerator"]
    expect(generator["options"]["disableNameSuffixHash"], "the name of the configuration changes")
    data = {name: open(f"{MANIFESTS}/{name}").read() for name in generator["files"]}
    objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})
    kubectl = subprocess.run(["kubectl", "kustomize", MANIFESTS], capture_output=True, text=True) if has("kubectl") else None
    if kubectl is not None:
        expect(kubectl.returncode == 0, kubectl.stderr)
        built = objects_of(kubectl.stdout)
        expect({(each["kind"], each["metadata"]["name"]) for each in built} == {(each["kind"], each["metadata"]["name"]) for each in objects}, "kubectl makes other objects")
        objects = built
    return objects


def has(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ["PATH"].split(":"))


def check_manifests(program, work):
    objects = manifests()
    for found in objects:
        validate(found)
    agree(objects)
    start(objects, program, work / "kubernetes")


def check_chart(values, program, place):
    with helm.Chart.load(CHART) as chart:
        rendered = chart.render(values, name="bus", namespace="space")
    objects = [found for name, text in rendered.items() if not name.endswith(".txt") for found in objects_of(text)]
    for found in objects:
        validate(found)
    agree(objects)
    start(objects, program, place)


def check_lint():
    findings = helm.lint(CHART)
    wrong = [each for each in findings["messages"] if each["severity"] > 1] + findings["errors"]
    expect(not wrong, json.dumps(wrong))


def check_refusals():
    with helm.Chart.load(CHART) as chart:
        for values in REFUSED:
            try:
                chart.validate_schema(chart.merge_values(values))
            except Exception:  # the error of the library has no public base
                continue
            raise Failed(f"the chart takes {values}")


def check_versions(program):
    version = run(program, "--version").split()[1]
    about = objects_of(open(f"{CHART}/Chart.yaml").read())[0]
    expect(about["appVersion"] == version, f"the chart is for {about['appVersion']}, the program is {version}")
    image = one(manifests(), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["image"]
    expect(image.endswith(f":{version}"), f"the manifests name {image}, the program is {version}")


def check(report, program, work):
    report.check("kubernetes/manifests", check_manifests, program, work)
    report.check("helm/lint", check_lint)
    for name, values in CASES.items():
        report.check(f"helm/{name}", check_chart, values, program, work / f"helm-{name}")
    report.check("helm/refusals", check_refusals)
    report.check("versions", check_versions, program)
