"""Do the same scenarios end in the same way whichever part is ours? One cluster for each combination, results compared.

    python -m tests.real.swap [--combination kube/dragoman/kube]... [--scenario lab]... [--write]

A combination is API server/scheduler/controllers, each Kubernetes' own ("kube") or ours. A scenario gives what came of
it as JSON, devices included; those of `kube/kube/kube` are what the others are compared with. `--write` puts the table
into docs/reference/swap.md. Nodes are objects alone here: nothing runs on them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.real import workload
from tests.real.cluster import Cluster, Parts
from tests.real.objects import API, Object, pod

COMBINATIONS = (
    "kube/kube/kube",
    "kube/dragoman/kube",
    "kube/kube/dragoman",
    "kube/dragoman/dragoman",
    "dragoman/kube/dragoman",
    "dragoman/dragoman/dragoman",
)
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "swap.md"
GATES = "GenericWorkload=true"
BOUND_S = 60.0
Scenario = Callable[[Cluster], Any]


# ---- what scenarios use


def bind(cluster: Cluster, *objects: Object) -> None:
    """Create pods one after the other, each once the one before has its node: then the order is the same everywhere."""
    for one in objects:
        cluster.apply(one)
        if one["kind"] == "Pod":
            name = one["metadata"]["name"]
            cluster.until(lambda name=name: node_of(cluster, name), f"{name} to be bound", BOUND_S)


def node_of(cluster: Cluster, name: str) -> str:
    found = cluster.find("Pod", name)
    return (found or {}).get("spec", {}).get("nodeName", "")


def devices(cluster: Cluster, name: str) -> list[str]:
    """The devices of the claims that are reserved for a pod."""
    found = []
    for claim in cluster.all("ResourceClaim", "default"):
        status = claim.get("status") or {}
        if any(one["name"] == name for one in status.get("reservedFor", ())):
            results = status["allocation"]["devices"]["results"]
            found += [f"{one['driver'].partition('.')[0]}/{one['device']}" for one in results]
    return sorted(found)


def using(name: str, template: str, **spec: Any) -> Object:
    return pod(name, claims={"device": {"resourceClaimTemplateName": template}}, **spec)


def refused(cluster: Cluster, name: str) -> bool:
    conditions = cluster.get("Pod", name).get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


# ---- scenarios


def lab(cluster: Cluster) -> Any:
    """Three pods with a device each, one with two on one rail."""
    bind(cluster, *(using(f"lab-{n}", "one") for n in range(3)), using("lab-3", "same-rail"))
    return {f"lab-{n}": devices(cluster, f"lab-{n}") for n in range(4)}


def sharing(cluster: Cluster) -> Any:
    """A claim of two pods, and shares of one network adapter."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    meta = {"name": "both", "namespace": "default"}
    claim = {"apiVersion": API, "kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": requests}}}
    users = [pod(f"user-{n}", claims={"gpu": {"resourceClaimName": "both"}}) for n in range(2)]
    bind(cluster, claim, *users, *(using(f"share-{n}", "nic") for n in range(4)))
    names = ("user-0", "user-1", *(f"share-{n}" for n in range(4)))
    return {name: devices(cluster, name) for name in names}


def partitions(cluster: Cluster) -> Any:
    """Partitions of two cards until one does not fit any more."""
    bind(cluster, using("part-a", "part-2"), using("part-b", "part-1"), using("part-c", "part-4"))
    cluster.apply(using("part-d", "part-4"))
    cluster.until(lambda: refused(cluster, "part-d"), "part-d to be refused", BOUND_S)
    return {name: devices(cluster, name) for name in ("part-a", "part-b", "part-c", "part-d")}


def alternatives(cluster: Cluster) -> Any:
    """A prioritized list whose first alternative no node has."""
    bind(cluster, using("either", "either"))
    claim = next(one for one in cluster.all("ResourceClaim", "default") if one.get("status", {}).get("allocation"))
    return [one["request"] for one in claim["status"]["allocation"]["devices"]["results"]]


def extended(cluster: Cluster) -> Any:
    """An extended resource that devices serve."""
    made = pod("extended")
    made["spec"]["containers"][0]["resources"] = {
        "requests": {workload.EXTENDED: "2"},
        "limits": {workload.EXTENDED: "2"},
    }
    bind(cluster, made)
    status = cluster.get("Pod", "extended")["status"]["extendedResourceClaimStatus"]
    return [devices(cluster, "extended"), status["requestMappings"]]


def eviction(cluster: Cluster) -> Any:
    """A DeviceTaintRule evicts the pod on its device and no other."""
    bind(cluster, using("stays", "one"), using("leaves", "one"))
    pool, device = "node-0", devices(cluster, "leaves")[0].partition("/")[2]
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    selector = {"driver": workload.GPU, "pool": pool, "device": device}
    spec = {"deviceSelector": selector, "taint": taint}
    cluster.apply({"apiVersion": API, "kind": "DeviceTaintRule", "metadata": {"name": "broken"}, "spec": spec})

    def is_leaving(name: str) -> bool:
        found = cluster.find("Pod", name)
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    try:
        cluster.until(lambda: is_leaving("leaves"), "the pod to be evicted", BOUND_S)
        return {"leaves": True, "stays": not is_leaving("stays"), "device": device}
    finally:
        cluster.kubectl("delete", "devicetaintrules", "broken", "--wait=false", ok=None)


def gang(cluster: Cluster) -> Any:
    """A gang that does not fit as a whole gets nothing, a smaller one all."""
    for name, size, template in (("large", 9, "one"), ("small", 3, "one")):
        meta = {"name": name, "namespace": "default"}
        spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
        cluster.apply({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": spec})
        members = [using(f"{name}-{n}", template, schedulingGroup={"podGroupName": name}) for n in range(size)]
        cluster.apply(*members)
    cluster.until(lambda: all(node_of(cluster, f"small-{n}") for n in range(3)), "the small gang to be bound", BOUND_S)
    return {
        "large": sum(bool(node_of(cluster, f"large-{n}")) for n in range(9)),
        "small": sorted(device for n in range(3) for device in devices(cluster, f"small-{n}")),
    }


def restart(cluster: Cluster) -> Any:
    """Scheduler and controllers are killed; what came meanwhile is done after, what was there stays."""
    bind(cluster, using("before", "one"))
    cluster.processes["scheduler"].kill()
    cluster.processes["controllers"].kill()
    cluster.apply(using("meanwhile", "one"))
    cluster.processes["controllers"].start()
    cluster.processes["scheduler"].start()
    cluster.until(lambda: node_of(cluster, "meanwhile"), "meanwhile to be bound", 90)
    return {name: devices(cluster, name) for name in ("before", "meanwhile")}


def rollout(cluster: Cluster) -> Any:
    """A Deployment is rolled out anew: the surge gets a device of its own, nobody loses theirs."""
    container = {"name": "main", "image": "a:1", "resources": {"claims": [{"name": "device"}]}}
    spec = {"resourceClaims": [{"name": "device", "resourceClaimTemplateName": "one"}], "containers": [container]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }

    def placed(count: int) -> bool:
        pods = [one for one in cluster.all("Pod", "default") if one["metadata"].get("labels", {}).get("app") == "web"]
        return len(pods) == count and all(one["spec"].get("nodeName") for one in pods)

    cluster.apply(body)
    cluster.until(lambda: placed(2), "two replicas to be bound", BOUND_S)
    container["image"] = "a:2"
    cluster.apply(body)
    cluster.until(lambda: placed(3), "the surge to be bound", BOUND_S)
    held = sorted(f"{driver.partition('.')[0]}/{device}" for driver, _, device in cluster.held())
    cluster.kubectl("delete", "deployment", "web", "--wait=false")
    return held


SCENARIOS: dict[str, Scenario] = {
    one.__name__: one for one in (lab, sharing, partitions, alternatives, extended, eviction, gang, restart, rollout)
}


# ---- running


def clean(cluster: Cluster) -> None:
    """End what a scenario left, so that every device is free."""
    for kinds in ("deployments.apps", "pods --force --grace-period=0", "podgroups.scheduling.k8s.io"):
        cluster.kubectl("delete", *kinds.split(), "--all", "--wait=false", ok=None)
    cluster.until(lambda: not cluster.all("Pod", "default"), "the pods to go", BOUND_S)
    cluster.kubectl("delete", "resourceclaims", "--all", "--wait=false", ok=None)
    cluster.until(lambda: not cluster.held(), "the devices to be free", BOUND_S)
    cluster.until(lambda: not cluster.all("ResourceClaim", "default"), "the claims to go", BOUND_S)


def parts(combination: str) -> Parts:
    """The parts of a combination, with what objects without kubelets need."""
    apiserver, scheduler, controllers = combination.split("/")
    left = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-nodes"
    flags: dict[str, tuple[str, ...]] = {
        "apiserver": (
            "--runtime-config=scheduling.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1=true",
        ),
        "controllers": (left.replace(",-nodes", ""),)
        if controllers == "kube"
        else ("--controllers", "*,-nodes,-podgc"),
    }
    if scheduler == "dragoman":
        flags["scheduler"] = ("--scheduler-name", "default-scheduler")
    whose: Any = {"apiserver": apiserver, "scheduler": scheduler, "controllers": controllers}
    return Parts(**whose, gates=GATES, flags=flags)


def outcomes(folder: Path, combination: str, names: list[str]) -> dict[str, Any]:
    """Scenario to what came of it; a text that begins with "failed" where it did not come to its end."""
    found: dict[str, Any] = {}
    with Cluster(folder, parts(combination)) as cluster:
        cluster.node("node-0", labels={"name": "node-0"})
        cluster.apply(*workload.fleet(1), *workload.templates())
        for name in names:
            began = time.monotonic()
            try:
                found[name] = json.loads(json.dumps(SCENARIOS[name](cluster)))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                found[name] = f"failed: {str(error).splitlines()[0][:150]}"
            try:
                clean(cluster)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                found[name] = f"failed: {str(error).splitlines()[0][:150]}"
            took = time.monotonic() - began
            print(f"{combination} {name}: {took:.0f} s {found[name]}", file=sys.stderr, flush=True)
    return found


def table(results: dict[str, dict[str, Any]], names: list[str]) -> list[str]:
    """Rows of the comparison; differences below it."""
    wanted = results.get(COMBINATIONS[0], {})
    lines = ["| API server / scheduler / controllers | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    notes: list[str] = []
    for combination, found in results.items():
        cells = []
        for name in names:
            result = found.get(name)
            failed = isinstance(result, str) and result.startswith("failed")
            is_equal = not failed and result == wanted.get(name)
            cells.append("failed" if failed else "equal" if is_equal else "differs")
            if not is_equal:
                notes.append(f"- {combination}, {name}: {result} (kube/kube/kube: {wanted.get(name)})")
        lines.append(f"| {combination} | " + " | ".join(cells) + " |")
    return [*lines, "", *notes]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.swap")
    parser.add_argument("--combination", action="append", choices=COMBINATIONS)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--write", action="store_true", help="put the table into docs/reference/swap.md")
    args = parser.parse_args(argv)
    names = args.scenario or list(SCENARIOS)
    results = {}
    for number, combination in enumerate(args.combination or COMBINATIONS):
        folder = Path(tempfile.mkdtemp(prefix=f"swap-{number}-"))
        try:
            results[combination] = outcomes(folder, combination, names)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    lines = table(results, names)
    print("\n".join(lines))
    if args.write:
        head = DOCUMENT.read_text().partition("<!-- table -->")[0]
        DOCUMENT.write_text(head + "<!-- table -->\n\n" + "\n".join(lines).rstrip() + "\n")
    return int(any("differs" in line or "failed" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
