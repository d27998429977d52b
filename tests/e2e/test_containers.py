"""What do containers of `dragoman up` do, as kubectl sees them: output, exit codes, files, probes, sessions, kill -9."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster, kubectls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kubectls(), reason="no kubectl: pip install -r requirements-dev.txt"),
]

PODS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast, run.sh: "#!/bin/sh\\necho run $1\\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: hush}
---
apiVersion: v1
kind: Pod
metadata: {name: work, labels: {tier: gold}}
spec:
  initContainers:
  - {name: first, image: busybox, command: [sh, -c, "echo made by first > /data/note"], volumeMounts: [{name: data, mountPath: /data}]}
  - {name: beside, image: busybox, restartPolicy: Always, command: [sh, -c, "tail -F /data/log"], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "trap 'echo ending; exit 0' TERM; cat /in/note; echo $MODE $TOKEN $POD > /in/log; while :; do sleep 1; done"]
    env:
    - {name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}
    - {name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    volumeMounts:
    - {name: data, mountPath: /in}
    - {name: all, mountPath: /all, readOnly: true}
  volumes:
  - {name: data, emptyDir: {}}
  - name: all
    projected:
      defaultMode: 0755
      sources:
      - {configMap: {name: settings}}
      - {secret: {name: keys, items: [{key: token, path: deep/token}]}}
      - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec:
  restartPolicy: Never
  containers: [{name: main, image: busybox, command: [echo, fine]}]
---
apiVersion: v1
kind: Pod
metadata: {name: failed}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: busybox, command: [sh, -c, "echo -n because > /dev/termination-log; exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "touch /tmp/ok; sleep 2; rm /tmp/ok; sleep 600"]
    livenessProbe: {exec: {command: [cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "sleep 2; touch /tmp/ready; sleep 600"]
    readinessProbe: {exec: {command: [test, -f, /tmp/ready]}, periodSeconds: 1}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="dra-") as short:  # sockets lie in it
        made = Cluster(tmp_path, "--node", "worker=example", "--data", short)
        made.start()
        yield made
        made.stop()


def test_containers_do_what_their_commands_say(cluster: Cluster) -> None:
    cluster.apply(PODS)
    cluster.running("work", "sick", "late")
    assert (
        cluster.kubectl("get", "pod", "late", "-o", "jsonpath={.status.containerStatuses[0].ready}").stdout == "false"
    )
    cluster.until(lambda: cluster.phase("done") == "Succeeded", "pod done to succeed")
    assert cluster.kubectl("logs", "done").stdout == "fine\n"
    cluster.until(lambda: cluster.phase("failed") == "Failed", "pod failed to fail")
    state = cluster.get("pod", "failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"], state["message"]) == (3, "Error", "because")
    assert cluster.kubectl("logs", "work", "-c", "main").stdout == "made by first\n"
    cluster.until(
        lambda: "hush" in cluster.kubectl("logs", "work", "-c", "beside").stdout, "the sidecar to read the log"
    )
    assert cluster.kubectl("logs", "work", "-c", "beside").stdout.endswith("fast hush work\n")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/late", "--timeout=20s")
    cluster.until(
        lambda: cluster.get("pod", "sick")["status"]["containerStatuses"][0]["restartCount"] > 0, "pod sick to restart"
    )
    assert "Liveness probe failed" in cluster.kubectl("get", "events", "--field-selector=reason=Unhealthy").stdout
    _look_inside(cluster)
    _copy(cluster)
    cluster.kill()
    cluster.start()
    cluster.running("work")
    cluster.until(
        lambda: cluster.kubectl("exec", "work", "-c", "main", "--", "cat", "/all/mode", ok=None).stdout == "fast",
        "the container to be there again",
    )
    cluster.kubectl("delete", "pod", "work", "--timeout=20s")


def _look_inside(cluster: Cluster) -> None:
    def inside(*command: str, stdin: str = "") -> tuple[int, str]:
        interactive = ["-i"] if stdin else []
        done = cluster.kubectl("exec", *interactive, "work", "-c", "main", "--", *command, stdin=stdin, ok=None)
        return done.returncode, done.stdout

    assert inside("sh", "-c", "env | grep ^MODE=; exit 5") == (5, "MODE=fast\n")
    assert inside("sh", "-c", "cat /all/deep/token; echo; cat /all/labels; /all/run.sh 9") == (
        0,
        'hush\ntier="gold"\nrun 9\n',
    )
    assert inside("touch", "/all/x")[0] == 1
    assert inside("sh", stdin="read x\nword\necho got $x\nexit 4\n") == (4, "got word\n")
    assert inside("hostname") == (0, "work\n")
    assert inside("torchrun", "train.py")[0] == 127


def _copy(cluster: Cluster) -> None:
    file, back = cluster.folder / "there.txt", cluster.folder / "back.txt"
    file.write_text("over and back\n" * 100)
    cluster.kubectl("cp", str(file), "work:/in/there", "-c", "main")
    cluster.kubectl("cp", "work:/data/there", str(back), "-c", "beside")
    assert back.read_text() == file.read_text()
