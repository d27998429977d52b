"""`up --runtime process`: containers of named images are processes of this machine, with their devices and no more."""

from __future__ import annotations

import os
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dragoman.kubelet.isolation import Isolation, isolation
from dragoman.kubelet.processes import ImageMap
from tests.e2e.conftest import Cluster, kubectls

needs_kubectl = pytest.mark.skipif(not kubectls(), reason="no kubectl: pip install -r requirements-dev.txt")

SCRIPT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)  # %(mark)s'])
print('devices', sorted(key for key in os.environ if key.startswith('GPU_DEVICE')))
print('mode', os.environ['MODE'], 'user', os.getuid(), 'args', sys.argv[1:])
print('token', len(open('/var/run/secrets/kubernetes.io/serviceaccount/token').read()) > 100)
open('/tmp/%(mark)s', 'w').write('x')
open('/out/result', 'w').write('done')
print('ready', flush=True)
time.sleep(600)
"""
PODS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: code}
data:
  train.py: |
%(script)s
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
  containers:
  - name: main
    image: registry.example/torch:2.9
    command: [%(python)s, /code/train.py, --steps=3]
    env: [{name: MODE, value: fast}]
    resources: {claims: [{name: gpu}], limits: {memory: 512Mi}}
    volumeMounts: [{name: code, mountPath: /code}, {name: out, mountPath: /out}]
  volumes: [{name: code, configMap: {name: code}}, {name: out, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: failed}
spec:
  restartPolicy: Never
  containers: [{name: main, image: "registry.example/torch:1", command: [sh, -c, "echo no >&2; exit 7"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: main, image: "web:1", args: [-m, http.server, "%(port)d", --bind, 127.0.0.1]}]
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec:
  containers: [{name: main, image: busybox, command: [sh, -c, "echo simulated; sleep 600"]}]
"""


def free_port() -> int:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    maps = ["--image-map", "registry.example/*=", "--image-map", f"web={sys.executable} -u"]
    made = Cluster(tmp_path, "--node", "worker=example", "--runtime", "process", *maps)
    made.start()
    yield made
    made.stop()


def alive(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in text and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


@needs_kubectl
@pytest.mark.slow
@pytest.mark.skipif(isolation() is Isolation.NONE, reason="a view of files of one's own needs root or user namespaces")
def test_processes_see_their_devices_and_end_with_their_pod(cluster: Cluster) -> None:
    mark, port = f"dragoman-{os.getpid()}", free_port()
    script = "\n".join(f"    {line}" for line in (SCRIPT % {"mark": mark}).splitlines())
    cluster.apply(PODS % {"script": script, "python": sys.executable, "port": port})
    cluster.running("train", "web", "other")
    log = cluster.until(
        lambda: text if "ready" in (text := cluster.kubectl("logs", "train").stdout) else "", "the script to be ready"
    )
    assert "devices ['GPU_DEVICE" in log, log
    user = 65534 if isolation() is Isolation.ROOT else 0
    assert f"mode fast user {user} args ['--steps=3']" in log
    assert "token True" in log
    assert cluster.kubectl("logs", "other").stdout == "simulated\n"
    assert not Path(f"/tmp/{mark}").exists()
    assert cluster.kubectl("exec", "train", "--", "cat", "/out/result").stdout == "done"
    cluster.until(lambda: cluster.phase("failed") == "Failed", "pod failed to fail")
    state = cluster.get("pod", "failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == 7
    assert cluster.kubectl("logs", "failed").stdout == "no\n"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as reply:
        assert reply.status == 200
    assert len(alive(mark)) >= 1
    cluster.kubectl("delete", "pod", "train", "web", "--timeout=60s")
    cluster.until(lambda: not alive(mark), "the processes of pod train to be gone")


def test_maps_name_images_and_programs() -> None:
    maps = ImageMap.parse(["web=sh -u", "registry.example/*="])
    assert maps.command("web:1", ("ignored",), ("-x",)) == ("sh", "-u", "-x")
    assert maps.command("registry.example/a/b@sha256:0", ("run",), ("-x",)) == ("run", "-x")
    assert maps.command("other", ("run",), ()) is None
    assert maps.command("registry.example/a", (), ()) is None


@pytest.mark.parametrize(
    ("text", "why"),
    {
        "web": "must be IMAGE=COMMAND",
        "=x": "must be IMAGE=COMMAND",
        "a=no-such-program-here": "is not a program of this machine",
        "a='": "cannot read",
    }.items(),
)
def test_maps_that_cannot_be(text: str, why: str) -> None:
    from dragoman.errors import Invalid

    with pytest.raises(Invalid, match=why):
        ImageMap.parse([text])
