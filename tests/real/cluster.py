"""How does a cluster of real and own parts run in tests? Which part is whose is a parameter; all on loopback.

    with Cluster(folder, Parts(scheduler="kube", controllers="kube")) as cluster:
        cluster.apply(manifest)
        cluster.dragoman("scheduler").start()

The light form, here, is etcd and kube-apiserver, ready in about 3 s without any rights, with kube-scheduler and
kube-controller-manager on request. Nodes are objects that `node` makes, or simulated ones of `dragoman node-agent`. The
full form with a real kubelet and containerd is in machine.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from dragoman.api.kinds import kind_of
from dragoman.testing.wait import until_true
from tests.real import build
from tests.real.pki import Authority
from tests.real.process import WAIT_S, Process, free_ports

Whose = Literal["kube", "dragoman", ""]
Object = dict[str, Any]

USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
}
START_S = 90.0


@dataclass(frozen=True)
class Parts:
    """Whose each part is: Kubernetes' own ("kube"), ours ("dragoman"), or none ("").

    kubelet: "kube" is a real node, in namespaces of its own (machine.py), which needs root.
    gates: feature gates of all parts, as `Name=true,...`. flags: more flags of a part, by its name here.
    """

    apiserver: Whose = "kube"
    scheduler: Whose = ""
    controllers: Whose = ""
    kubelet: Literal["kube", ""] = ""
    kubernetes: str = build.KUBERNETES
    gates: str = ""
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def executables(self) -> Iterable[tuple[str, str]]:
        """(name, version) of what must have been built."""
        if self.apiserver == "kube":
            yield "etcd", ""
            yield "kube-apiserver", self.kubernetes
        if self.scheduler == "kube":
            yield "kube-scheduler", self.kubernetes
        if self.controllers == "kube":
            yield "kube-controller-manager", self.kubernetes


def executable(name: str, version: str = "") -> str:
    """The path of a part that was built; skips the test, by name, where it was not."""
    path = build.found(name, version)
    if path is None:
        target = "real" if version in ("", build.KUBERNETES) else "real-versions"
        pytest.skip(f"{name} {version}".strip() + f" is not built: `make {target}` does")
    return str(path)


class Cluster:
    """A control plane. Every daemon is a `Process` in `processes`, by name."""

    def __init__(self, folder: Path, parts: Parts | None = None) -> None:
        self.parts = parts or Parts()
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self.enter: list[str] = []  # command that runs the rest where the daemons run
        self.port, self._etcd, self._peer, self._scheduler, self._controllers = free_ports(5)
        self.hosts = ["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc"]
        self._kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if self._kubectl is None:
            pytest.skip("kubectl is not installed")
        for name, version in self.parts.executables():
            executable(name, version)

    # ---- life

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the control plane and wait until the API answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.parts.apiserver == "dragoman":
            self.run("apiserver", self._dragoman_api())
            until_true(self.kubeconfig.exists, "a kubeconfig", START_S, log=self.processes["apiserver"].log)
        else:
            self._credentials()
            self.run("etcd", self._etcd_command())
            self.run("apiserver", self._kube_apiserver())
        until_true(self._ready, "the API server to be ready", START_S, log=self.processes["apiserver"].log)
        if self.parts.controllers == "kube":
            self.start_controllers()
        elif self.parts.controllers == "dragoman":
            self.dragoman("controllers", *self.parts.flags.get("controllers", ()), name="controllers").start()
        if self.parts.scheduler == "kube":
            self.run("scheduler", self._kube_scheduler())
        elif self.parts.scheduler == "dragoman":
            flags = self.parts.flags.get("scheduler", ("--scheduler-name", "default-scheduler"))
            self.dragoman("scheduler", *flags, *self._gates(), name="scheduler").start()

    def start_controllers(self) -> None:
        """Start kube-controller-manager and wait until it works."""
        self.run("controllers", self._kube_controllers())
        until_true(lambda: self.find("ServiceAccount", "default"), "the controllers to work", START_S, log=self.log)

    def stop(self) -> None:
        """End everything, last started first."""
        for process in reversed(self.processes.values()):
            if process.runs:
                process.stop()

    def run(self, name: str, command: list[str], *, environment: dict[str, str] | None = None) -> Process:
        """Start a daemon beside the others."""
        self.processes[name] = Process(name, command, self.folder, environment=environment, enter=self.enter)
        return self.processes[name].start()

    def dragoman(self, command: str, *flags: str, name: str = "", user: str = "admin") -> Process:
        """A daemon of ours, not started yet; user: whose rights it has."""
        name = name or f"dragoman-{command}"
        argv = [sys.executable, "-m", "dragoman.cli", command, *flags, "--log-format", "human"]
        self.processes[name] = Process(
            name,
            argv,
            self.folder,
            environment={"KUBECONFIG": str(self.kubeconfig_of(user)), "HOME": str(self.folder)},
            enter=self.enter,
        )
        return self.processes[name]

    def log(self) -> str:
        """The end of every log."""
        return "\n".join(f"--- {name}\n{process.log()[-1500:]}" for name, process in self.processes.items())

    # ---- commands of the parts

    def _gates(self) -> list[str]:
        return ["--feature-gates", self.parts.gates] if self.parts.gates else []

    def _more(self, part: str) -> list[str]:
        return [*self._gates(), *self.parts.flags.get(part, ())]

    def _dragoman_api(self) -> list[str]:
        return [
            *(
                sys.executable,
                "-m",
                "dragoman.cli",
                "up",
                "--without",
                "nodes,scheduler,controllers",
                "--port",
                str(self.port),
            ),
            *("--kubeconfig", str(self.kubeconfig), *self._more("apiserver")),
        ]

    def _etcd_command(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd, self._peer))
        return [
            *(executable("etcd"), "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
            ),
        ]

    def _kube_apiserver(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            executable("kube-apiserver", self.parts.kubernetes),
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            *self._surroundings(),
            f"--secure-port={self.port}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-key-file={pki}/sa.key",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            *self._more("apiserver"),
        ]

    def _surroundings(self) -> list[str]:
        # The Service `kubernetes` may not lead to loopback, so it has no endpoints here.
        addresses = ["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]
        if self.parts.controllers == "kube":
            return addresses
        return [*addresses, "--disable-admission-plugins=ServiceAccount"]  # nobody makes service accounts

    def _kube_scheduler(self) -> list[str]:
        return [
            executable("kube-scheduler", self.parts.kubernetes),
            *self._kube_daemon("kube-scheduler", self._scheduler),
            *self._more("scheduler"),
        ]

    def _kube_controllers(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            executable("kube-controller-manager", self.parts.kubernetes),
            *self._kube_daemon("kube-controller-manager", self._controllers),
            f"--service-account-private-key-file={pki}/sa.key",
            f"--root-ca-file={pki}/ca.crt",
            "--use-service-account-credentials=true",
            *self._more("controllers"),
        ]

    def _kube_daemon(self, user: str, port: int) -> list[str]:
        kubeconfig = self.kubeconfig_of(user)
        return [
            *(f"--{use}kubeconfig={kubeconfig}" for use in ("", "authentication-", "authorization-")),
            *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        ]

    # ---- who may do what

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of one of `USERS`, or of a service account `namespace/name` that exists."""
        if "/" not in user:
            return self.folder / f"{user}.kubeconfig" if self.parts.apiserver == "kube" else self.kubeconfig
        namespace, name = user.split("/")
        path = self.folder / f"{namespace}-{name}.kubeconfig"
        if not path.exists():
            token = self.kubectl("create", "token", name, "-n", namespace, "--duration=2h").stdout.strip()
            self._write_kubeconfig(path, token)
        return path

    def _credentials(self) -> None:
        authority = Authority(self.folder / "pki")
        authority.server("apiserver", self.hosts)
        authority.client("admin", "admin", "system:masters")
        authority.key("sa")
        rows = []
        for number, (name, (user, groups)) in enumerate(self.users().items()):
            rows.append(f'{name}-token,{user},{number},"{groups}"')
            self._write_kubeconfig(self.folder / f"{name}.kubeconfig", f"{name}-token")
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")

    def users(self) -> dict[str, tuple[str, str]]:
        """Users with a token file entry: name of the kubeconfig to (user, groups)."""
        return USERS

    def _write_kubeconfig(self, path: Path, token: str) -> None:
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": f"{self.folder}/pki/ca.crt"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
            "current-context": "real",
        }
        path.write_text(json.dumps(config))

    # ---- the API

    def _ready(self) -> bool:
        assert self.processes["apiserver"].runs, f"the API server ended\n{self.log()}"
        return self.kubectl("get", "--raw", "/readyz", ok=None).stdout == "ok"

    def kubectl(self, *arguments: str, stdin: str = "", ok: bool | None = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin; ok None accepts any exit status."""
        assert self._kubectl is not None
        command = [self._kubectl, "--kubeconfig", str(self.kubeconfig), "--request-timeout", "30s", *arguments]
        environment = {**os.environ, "HOME": str(self.folder)}
        done = subprocess.run(command, input=stdin, text=True, capture_output=True, env=environment, timeout=120)
        if ok is not None:
            assert (done.returncode == 0) == ok, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    def apply(self, *objects: str | Object, ok: bool | None = True) -> subprocess.CompletedProcess[str]:
        """kubectl apply of manifests: YAML text or objects."""
        texts = [one if isinstance(one, str) else json.dumps(one) for one in objects]
        return self.kubectl("apply", "-f", "-", stdin="\n---\n".join(texts), ok=ok)

    def all(self, kind: str, namespace: str = "") -> list[Object]:
        """All objects of a kind; namespace "": in all."""
        where = ["-n", namespace] if namespace else ["-A"]
        found = self.kubectl("get", _resource(kind), *where, "-o", "json").stdout
        items: list[Object] = json.loads(found)["items"]
        return items

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """An object, None if there is none of that name."""
        done = self.kubectl("get", _resource(kind), name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: Object | None = json.loads(done.stdout) if done.stdout.strip() else None
        return found

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        """An object that must exist."""
        found = self.find(kind, name, namespace)
        assert found is not None, f"there is no {kind} {namespace}/{name}"
        return found

    def status(self, kind: str, name: str, status: Object, namespace: str = "default") -> None:
        """Merge into an object's status."""
        patch = json.dumps({"status": status})
        self.kubectl(
            "patch", _resource(kind), name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
        )

    def until(self, look: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
        """Look again and again until something true comes; fails with the logs of all daemons."""
        return until_true(look, what, seconds, log=self.log)

    # ---- what tests need often

    def node(self, name: str, *, labels: dict[str, str] | None = None, taints: Iterable[Object] = ()) -> None:
        """A node that is an object alone: pods are bound to it and never run. It stays ready for about 40 s where
        kube-controller-manager watches heartbeats."""
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        room = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": "made by a test"}]
        self.status("Node", name, {"capacity": room, "allocatable": room, "conditions": conditions}, "")
        # Every node starts with the taint not-ready, which nobody takes away where kube-controller-manager is not.
        patch = json.dumps({"spec": {"taints": list(taints)}})
        self.kubectl("patch", "node", name, "--type=merge", "-p", patch)

    def devices_of(self, claim: str, namespace: str = "default") -> list[tuple[str, str, str]]:
        """(driver, pool, device) that a claim holds."""
        status = self.get("ResourceClaim", claim, namespace).get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results", [])
        return [(one["driver"], one["pool"], one["device"]) for one in results]

    def held(self) -> dict[tuple[str, str, str], list[str]]:
        """Which claims hold each device, `namespace/name`; admin access holds nothing."""
        holders: dict[tuple[str, str, str], list[str]] = {}
        for claim in self.all("ResourceClaim"):
            meta = claim["metadata"]
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for one in (allocation.get("devices") or {}).get("results", []):
                if not one.get("adminAccess"):
                    device = (one["driver"], one["pool"], one["device"])
                    holders.setdefault(device, []).append(f"{meta['namespace']}/{meta['name']}")
        return holders


def _resource(kind: str) -> str:
    """kubectl's name of a kind: plural, with its group."""
    found = kind_of(kind)
    return f"{found.plural}.{found.group}" if found.group else found.plural
