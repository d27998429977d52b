"""How long does a dump of a large cluster take to load, as JSON and as YAML?

    .venv/bin/python bench/dump.py [--nodes 1000] [--pods 8000] [--keep FOLDER]

Makes what `kubectl get nodes,pods,resourceclaims,... -A -o json|yaml` prints of a cluster of 8 devices a node, and
loads it as the commands do that take -f, each in a process of its own. One JSON line a form: seconds, CPU seconds, MB,
objects.
Targets on two cores: JSON under 3 s, YAML under 8 s for 1,000 nodes and 8,000 pods.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ryaml

import dragoman

Object = dict[str, Any]
DRIVER = "gpu.example.com"
WHEN = "2026-01-05T08:30:00Z"
ZONES = ("a", "b", "c")


def metadata(name: str, number: int, namespace: str = "", **more: Any) -> Object:
    """What a server fills in."""
    found: Object = {
        "creationTimestamp": WHEN,
        "name": name,
        "resourceVersion": str(100_000 + number),
        "uid": f"{number:08x}-6f2a-4c1b-9d3e-{number:012x}",
        **more,
    }
    return {**found, "namespace": namespace} if namespace else found


def node(index: int) -> Object:
    """A node as a kubelet reports it."""
    name = f"node-{index:04d}"
    amounts = {"cpu": "64", "ephemeral-storage": "966787568Ki", "memory": "528166116Ki", "pods": "110"}
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
    }
    conditions = [
        {
            "lastHeartbeatTime": WHEN,
            "lastTransitionTime": WHEN,
            "message": f"kubelet has no {kind.lower()}" if kind != "Ready" else "kubelet is posting ready status",
            "reason": f"KubeletHas{kind}",
            "status": str(kind == "Ready"),
            "type": kind,
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {"names": [f"images.example.com/team-{i}/app-{i}:v1.{i}.{index % 7}"], "sizeBytes": 91_000_000 + i}
        for i in range(20)
    ]
    status = {
        "addresses": [
            {"address": f"10.{index // 256}.{index % 256}.1", "type": "InternalIP"},
            {"address": name, "type": "Hostname"},
        ],
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": conditions,
        "images": images,
        "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.37.1", "operatingSystem": "linux"},
    }
    spec = {"podCIDR": f"10.{index // 256}.{index % 256}.0/24", "providerID": f"example://{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata(name, index, labels=labels),
        "spec": spec,
        "status": status,
    }


def resource_slice(index: int) -> Object:
    """The node's slice."""
    name = f"node-{index:04d}"
    devices = [
        {
            "attributes": {
                "driverVersion": {"version": "1.4.2"},
                "index": {"int": at},
                "model": {"string": f"EXAMPLE-{80 if index % 4 else 40}GB"},
                "resource.kubernetes.io/numaNode": {"int": at // 4},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{at // 2:02x}"},
                "uuid": {"string": f"gpu-{index:08x}-{at:04x}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
            "name": f"gpu-{at}",
        }
        for at in range(8)
    ]
    pool = {"generation": 1, "name": name, "resourceSliceCount": 1}
    spec = {"devices": devices, "driver": DRIVER, "nodeName": name, "pool": pool}
    meta = metadata(f"0-{DRIVER}-{name}", 10_000 + index)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}


def claim(index: int) -> Object:
    """A claim from a template, allocated."""
    name, pod = f"pod-{index:05d}-gpu-x{index:05d}", f"pod-{index:05d}"
    place = f"node-{index // 8:04d}"
    result = {"device": f"gpu-{index % 8}", "driver": DRIVER, "pool": place, "request": "gpu"}
    here = [{"key": "metadata.name", "operator": "In", "values": [place]}]
    owner = {
        "apiVersion": "v1",
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": "Pod",
        "name": pod,
        "uid": metadata(pod, 30_000 + index)["uid"],
    }
    meta = metadata(
        name,
        20_000 + index,
        "team",
        annotations={"resource.kubernetes.io/pod-claim-name": "gpu"},
        finalizers=["resource.kubernetes.io/delete-protection"],
        ownerReferences=[owner],
    )
    exactly = {"allocationMode": "ExactCount", "count": 1, "deviceClassName": DRIVER}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": here}]},
        },
        "reservedFor": [{"name": pod, "resource": "pods", "uid": owner["uid"]}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": [{"exactly": exactly, "name": "gpu"}]}},
        "status": status,
    }


def pod(index: int) -> Object:
    """A running pod with a claim, as a Deployment's."""
    name = f"pod-{index:05d}"
    volume = f"kube-api-access-{index:05d}"
    env = [{"name": f"SETTING_{i}", "value": f"value {i} of {name}"} for i in range(8)]
    container = {
        "args": ["--model=/models/base", "--port=8000"],
        "env": env,
        "image": "images.example.com/team/app:v1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "name": "main",
        "ports": [{"containerPort": 8000, "name": "http", "protocol": "TCP"}],
        "resources": {
            "claims": [{"name": "gpu"}],
            "limits": {"memory": "32Gi"},
            "requests": {"cpu": "4", "memory": "32Gi"},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": volume, "readOnly": True}
        ],
    }
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    spec = {
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "nodeName": f"node-{index // 8:04d}",
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": volume, "projected": {"defaultMode": 420, "sources": [token]}}],
    }
    conditions = [
        {"lastProbeTime": None, "lastTransitionTime": WHEN, "status": "True", "type": kind}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    state = {
        "containerID": f"containerd://{index:064x}",
        "image": container["image"],
        "imageID": f"images.example.com/team/app@sha256:{index:064x}",
        "lastState": {},
        "name": "main",
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": WHEN}},
    }
    status = {
        "conditions": conditions,
        "containerStatuses": [state],
        "hostIP": "10.0.0.1",
        "phase": "Running",
        "podIP": f"10.{index // 65536}.{index // 256 % 256}.{index % 256}",
        "qosClass": "Burstable",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu-x{index:05d}"}],
        "startTime": WHEN,
    }
    meta = metadata(name, 30_000 + index, "team", labels={"app": "inference", "pod-template-hash": "6d4c8f7b9"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def objects(nodes: int, pods: int) -> Iterator[Object]:
    """All objects of the cluster."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    owner = metadata(DRIVER, 1)
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": owner,
        "spec": {"selectors": [selector]},
    }
    yield from map(node, range(nodes))
    yield from map(resource_slice, range(nodes))
    yield from map(claim, range(pods))
    yield from map(pod, range(pods))


def as_json(items: list[Object]) -> str:
    """As kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4)


def as_yaml(items: list[Object]) -> str:
    """As kubectl prints it."""
    parts = ["apiVersion: v1\nitems:\n"]
    for item in items:
        lines = ryaml.dumps(item).removeprefix("---\n").splitlines()
        parts.append("- " + "\n  ".join(lines) + "\n")
    return "".join(parts) + 'kind: List\nmetadata:\n  resourceVersion: ""\n'


LOAD = """
import json, resource, sys, time
from dragoman.cli import source
began, busy = time.perf_counter(), time.process_time()
world = source.from_files([sys.argv[1]])
seconds, cpu = time.perf_counter() - began, time.process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
told = {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "peak_mb": peak, "objects": len(world.documents)}
print(json.dumps(told))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8000)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the dumps there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = args.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for form, write in (("json", as_json), ("yaml", as_yaml)):
            file = folder / f"dump.{form}"
            file.write_text(write(list(objects(args.nodes, args.pods))), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-c", LOAD, str(file)], capture_output=True, text=True, check=True, env=os.environ
            )
            reported = {"form": form, "nodes": args.nodes, "pods": args.pods, "mb": file.stat().st_size // 10**6}
            reported |= json.loads(done.stdout)
            reported |= {"version": dragoman.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
            print(json.dumps(reported), flush=True)


if __name__ == "__main__":
    main()
