"""How does a real kubelet run in tests? With containerd, in mount, network and PID namespaces of its own.

`Machine` is a `Cluster` whose daemons all run in there. The API is reached from outside as that of any other cluster;
`inside` runs a command there. Needs root. Nothing is left when it ends: processes, mounts and network go with the
namespaces, then the cgroups and the folder are removed.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dragoman.testing.wait import until_true
from tests.real import build, image
from tests.real.cluster import START_S, USERS, Cluster, Parts, executable
from tests.real.inside import ADDRESS, BRIDGE
from tests.real.process import Process, free_ports

NODE = "real-node"
ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")
PAUSE, BUSYBOX = "localhost/pause:1", "localhost/busybox:1"


class Machine(Cluster):
    """A control plane, containerd and a kubelet whose node is `NODE`."""

    def __init__(self, folder: Path, parts: Parts | None = None) -> None:
        _check_rights()
        super().__init__(folder, parts)
        for name in ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "bridge"):
            executable(name, self.parts.kubernetes if name == "kubelet" else "")
        # Unix sockets lie below it, whose paths must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="real-", dir="/tmp"))
        self.hosts.append(ADDRESS)
        self._kubelet_port, self._health_port = free_ports(2)
        self._cgroup = f"dragoman-{self.folder.name}"
        self._namespaces: subprocess.Popen[bytes] | None = None

    # ---- life

    def start(self) -> None:
        """Make the machine, start everything on it, and wait until the node is ready."""
        self._make_cgroups()
        self._make_namespaces()
        super().start()
        self._write_settings()
        self.run("containerd", [executable("containerd"), "--config", f"{self.folder}/containerd.toml"])
        until_true(lambda: self._ctr("version") == 0, "containerd", START_S, log=self.processes["containerd"].log)
        self._import_images()
        self.run("kubelet", self._kubelet_command())
        until_true(self._node_is_ready, "the node to be ready", START_S, log=self.processes["kubelet"].log)

    def stop(self) -> None:
        """End everything and take it away."""
        try:
            super().stop()
        finally:
            if self._namespaces is not None:
                self._namespaces.kill()
                self._namespaces.wait()
            self._remove_cgroups()
            shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, *command: str, ok: bool | None = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine; ok None accepts any exit status."""
        done = subprocess.run([*self.enter, *command], text=True, capture_output=True, timeout=120)
        if ok is not None:
            assert (done.returncode == 0) == ok, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done

    def users(self) -> dict[str, tuple[str, str]]:
        """The kubelet, too."""
        return {**USERS, "kubelet": (f"system:node:{NODE}", "system:nodes")}

    def driver(self, kind: str, *flags: str) -> Process:
        """A driver of ours on the node, started and registered with the kubelet."""
        process = self.dragoman("driver", kind, *flags, "--node-name", NODE, name=f"driver-{kind}").start()
        until_true(lambda: "registered" in process.log(), f"driver {kind} to register", 60, log=process.log)
        return process

    # ---- namespaces

    def _make_namespaces(self) -> None:
        with socket.create_server(("127.0.0.1", self.port)) as listening:
            number = listening.fileno()
            command = [
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc"),
                *("--kill-child", sys.executable, "-m", "tests.real.inside", self.folder, str(number), str(self.port)),
            ]
            with (self.folder / "inside.log").open("wb") as log:
                self._namespaces = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[number],
                    start_new_session=True,
                )
        log_text = (self.folder / "inside.log").read_text
        until_true((self.folder / "ready").exists, "the namespaces", START_S, log=log_text)
        outer = self._namespaces.pid
        first = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
        self.enter = ["nsenter", "-t", first, "-m", "-n", "-p", f"--wd={self.folder}", "--"]

    def _make_cgroups(self) -> None:
        for root in _cgroup_roots():
            made = root / self._cgroup
            made.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if root.name == "cpuset":  # cgroup v1: empty ones take no process
                    (made / name).write_text((root / name).read_text())

    def _remove_cgroups(self) -> None:
        deadline = time.monotonic() + 10
        for root in (*_cgroup_roots(), CGROUPS / "unified"):  # runc makes one in the latter, too
            made = root / self._cgroup
            while made.exists() and time.monotonic() < deadline:
                for folder, _, _ in os.walk(made, topdown=False):
                    with suppress(OSError):  # processes that were killed may take a moment to go
                        Path(folder).rmdir()
                time.sleep(0.05)

    # ---- the node

    def _surroundings(self) -> list[str]:
        return ["--bind-address=0.0.0.0", f"--advertise-address={ADDRESS}"]

    def _ctr(self, *arguments: str) -> int:
        command = [executable("ctr"), "-a", f"{self.folder}/c.sock", "-n", "k8s.io", *arguments]
        return self.inside(*command, ok=None).returncode

    def _import_images(self) -> None:
        busybox = Path(shutil.which("busybox") or "/bin/busybox")
        links = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
        image.write(self.folder / "pause.tar", PAUSE, busybox, ["/bin/busybox", "tail", "-f", "/dev/null"])
        image.write(self.folder / "busybox.tar", BUSYBOX, busybox, ["/bin/sh"], links=links)
        for name in ("pause", "busybox"):
            self.import_image(self.folder / f"{name}.tar")

    def import_image(self, archive: Path) -> None:
        """Let containerd have an image."""
        assert self._ctr("image", "import", str(archive)) == 0, f"no image {archive.name}"

    def _kubelet_command(self) -> list[str]:
        return [
            executable("kubelet", self.parts.kubernetes),
            f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self.folder}/kubelet.kubeconfig",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
            "--root-dir=/var/lib/kubelet",
            *self.parts.flags.get("kubelet", ()),
        ]

    def _node_is_ready(self) -> bool:
        node = self.find("Node", NODE)
        conditions = node["status"].get("conditions", []) if node else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _write_settings(self) -> None:
        (self.folder / "containerd.toml").write_text(self._containerd_settings())
        network = {
            "cniVersion": "1.0.0",
            "name": "real",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": BRIDGE,
                    "isGateway": False,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": f"{self.folder}/ipam",
                        "ranges": [[{"subnet": "10.99.0.0/24", "rangeStart": "10.99.0.10", "gateway": ADDRESS}]],
                        "routes": [{"dst": "10.0.0.0/24"}],
                    },
                }
            ],
        }
        (self.folder / "cni").mkdir(exist_ok=True)
        (self.folder / "cni" / "10-real.conflist").write_text(json.dumps(network))
        (self.folder / "kubelet.yaml").write_text(json.dumps(self._kubelet_settings()))

    def _containerd_settings(self) -> str:
        return f"""version = 3
root = "{self.folder}/containerd"
state = "/run/containerd"
[grpc]
address = "{self.folder}/c.sock"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["/var/run/cdi"]
disable_apparmor = true
restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE runc cannot lower it
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{Path(executable("bridge")).parent}"]
conf_dir = "{self.folder}/cni"
"""

    def _kubelet_settings(self) -> dict[str, object]:
        gates = (one.partition("=") for one in self.parts.gates.split(",") if one)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "containerRuntimeEndpoint": f"unix://{self.folder}/c.sock",
            "address": ADDRESS,
            "port": self._kubelet_port,
            "healthzPort": self._health_port,
            "healthzBindAddress": "127.0.0.1",
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{self.folder}/pki/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "resolvConf": "",
            "clusterDNS": ["10.0.0.10"],
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
            "featureGates": {name: value == "true" for name, _, value in gates},
        }


def _cgroup_roots() -> list[Path]:
    """Where cgroups are made: each controller's tree of v1, or the one of v2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [one for one in CGROUPS.iterdir() if (one / "cgroup.procs").exists() and one.name != "unified"]


def _check_rights() -> None:
    """Skip the test, by name, where a kubelet cannot run."""
    if os.geteuid() != 0:
        pytest.skip("a real kubelet needs root")
    lacking = build.lacking_packages()
    if lacking:
        pytest.skip(f"a real kubelet needs the Debian packages {' '.join(lacking)}: `make real` installs them")
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("a real kubelet needs the right to make namespaces")
