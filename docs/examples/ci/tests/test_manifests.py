"""The manifests on a cluster of the session's own: every replica gets a GPU of its own."""

import json
import subprocess


def kubectl(cluster, *arguments):
    done = subprocess.run(
        ["kubectl", *arguments], env=cluster.environment, check=True, capture_output=True, text=True, timeout=180
    )
    return done.stdout


def test_every_replica_has_a_gpu_of_its_own(dragoman_cluster):
    kubectl(dragoman_cluster, "apply", "-f", "manifests")
    kubectl(dragoman_cluster, "wait", "--for=condition=Available", "deployment/inference", "--timeout=120s")
    claims = json.loads(kubectl(dragoman_cluster, "get", "resourceclaims", "-o", "json"))["items"]
    devices = [
        (result["pool"], result["device"])
        for claim in claims
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert len(devices) == len(set(devices)) == 2
