"""`up --process-network pod`: pods whose processes listen on the same port, reached at addresses of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.kubelet import podnetwork
from tests.e2e.conftest import Cluster, kubectls
from tests.e2e.test_processes import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kubectls(), reason="no kubectl: pip install -r requirements-dev.txt"),
    pytest.mark.skipif(not podnetwork.possible(), reason="networks of one's own need root or user namespaces"),
]

SERVER = """
import http.server, os, ssl, urllib.request
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists('/shared/stop') else 200)
        name = os.environ['HOSTNAME'].encode()
        self.send_header('Content-Length', str(len(name)))
        self.end_headers()
        self.wfile.write(name)
folder = '/var/run/secrets/kubernetes.io/serviceaccount/'
host = os.environ['KUBERNETES_SERVICE_HOST'] + ':' + os.environ['KUBERNETES_SERVICE_PORT']
context = ssl.create_default_context(cafile=folder + 'ca.crt')
request = urllib.request.Request('https://' + host + '/api', headers={'Authorization': 'Bearer ' + open(folder + 'token').read()})
print('api', urllib.request.urlopen(request, context=context).status, flush=True)
http.server.ThreadingHTTPServer(('', LISTEN), Answer).serve_forever()
"""
OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: code}
data:
  server.py: |
%s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: web:1
        args: [/code/server.py]
        ports: [{name: http, containerPort: LISTEN}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1, failureThreshold: 1}
        volumeMounts: [{name: code, mountPath: /code}, {name: shared, mountPath: /shared}]
      - name: side
        image: side:1
        command: [sleep, "600"]
        volumeMounts: [{name: shared, mountPath: /shared}, {name: code, mountPath: /seen}]
      volumes: [{name: code, configMap: {name: code}}, {name: shared, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    maps = ["--image-map", f"web={sys.executable} -u", "--image-map", "side="]
    made = Cluster(tmp_path, "--node", "worker=example", "--runtime", "process", "--process-network", "pod", *maps)
    made.start()
    yield made
    made.stop()


def endpoints(cluster: Cluster) -> list[str]:
    (found,) = cluster.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
    ready = [one for one in found.get("endpoints") or [] if one["conditions"]["ready"]]
    return [f"{one['addresses'][0]}:{found['ports'][0]['port']}" for one in ready]


def answer(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/", timeout=10) as reply:
        return reply.read().decode()


def test_pods_listen_on_one_port_each_at_its_address(cluster: Cluster, tmp_path: Path) -> None:
    script = "\n".join(f"    {line}" for line in SERVER.splitlines())
    port = free_port()
    cluster.apply((OBJECTS % script).replace("LISTEN", str(port)))
    addresses = cluster.until(lambda: len(found := endpoints(cluster)) == 2 and found, "two ready endpoints")
    pods = {pod["metadata"]["name"]: pod for pod in cluster.get("pods")["items"]}
    assert {answer(address) for address in addresses} == set(pods)
    assert {f"{pod['status']['podIP']}:{port}" for pod in pods.values()} == set(addresses)
    assert "api 200" in cluster.kubectl("logs", next(iter(pods)), "-c", "main").stdout

    # A file of one container is seen by the other, whose probe then fails.
    name = sorted(pods)[0]
    cluster.kubectl("exec", name, "-c", "side", "--", "touch", "/shared/stop")
    cluster.until(lambda: len(endpoints(cluster)) == 1, "one endpoint to be unready")
    events = cluster.kubectl("get", "events", "--field-selector", "reason=Unhealthy").stdout
    assert "statuscode: 503" in events
    cluster.kubectl("exec", name, "-c", "side", "--", "rm", "/shared/stop")
    cluster.until(lambda: len(endpoints(cluster)) == 2, "it to be ready again")

    # What becomes of a ConfigMap is seen while the process runs.
    cluster.kubectl("patch", "configmap", "code", "--type=merge", "-p", '{"data":{"more":"new"}}')
    read = ("exec", name, "-c", "side", "--", "cat", "/seen/more")
    cluster.until(lambda: cluster.kubectl(*read, ok=None).stdout == "new", "the new key")

    assert forwarded(cluster, name, port, tmp_path) == name

    # A rolling update starts the new pods while the old ones listen.
    cluster.kubectl("rollout", "restart", "deployment/web")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert not set(pods) & {pod["metadata"]["name"] for pod in cluster.get("pods")["items"] if _lives(pod)}
    cluster.kubectl("delete", "deployment", "web")
    cluster.gone("pods", "-l", "app=web")
    with pytest.raises(OSError):
        answer(addresses[0])

    # Another program of this machine that listens everywhere is not taken for the pod by the cluster's own calls.
    with socket.create_server(("0.0.0.0", port)):
        cluster.apply((OBJECTS % script).replace("LISTEN", str(port)))
        cluster.until(lambda: len(endpoints(cluster)) == 2, "two ready endpoints beside it")
        assert cluster.kubectl("get", "events", "--field-selector", "reason=PortInUse", "-o", "name").stdout


def _lives(pod: dict[str, dict[str, object]]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def forwarded(cluster: Cluster, pod: str, port: int, folder: Path) -> str:
    """The pod's answer through kubectl port-forward."""
    log = folder / "forward.log"
    command = [cluster.kubectl_path, "--kubeconfig", str(cluster.kubeconfig), "port-forward", f"pod/{pod}", f":{port}"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        line = cluster.until(lambda: "Forwarding from" in (text := log.read_text()) and text, "the forwarding")
        return answer(f"127.0.0.1:{line.split('127.0.0.1:')[1].split()[0]}")
    finally:
        process.terminate()
        process.wait(10)
