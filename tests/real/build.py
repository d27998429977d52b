"""Where are the real parts of Kubernetes, and how are they built? From the Go module proxy, into a cache folder.

    python -m tests.real.build [--kubernetes 1.36.3]... [--only NAME,...]

`make real` and `make real-versions` call it. Each executable is a step of its own: what exists is kept, so that an
interrupted build goes on where it ended. Sources come from the module proxy that Go is set up with, and Go checks them
against its checksum database. Tests call `found` and never build.

The folder is $DRAGOMAN_REAL, else $XDG_CACHE_HOME/dragoman/real, else ~/.cache/dragoman/real.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.37.2"
OLDER = ("1.36.3", "1.35.4", "1.34.4")
GO = (1, 26)
DEBIAN = ("runc", "busybox-static", "iproute2")
"""What a real kubelet needs of the machine: the OCI runtime, the one image that tests run, `ip` for the bridge."""


PROGRAMS = Path(__file__).parent / "programs"
"""Programs of our own in Go; a folder each."""


@dataclass(frozen=True)
class Part:
    """Executables of one module at one version. packages: relative to the module, with the executable's name."""

    name: str
    module: str
    version: str
    packages: tuple[tuple[str, str], ...]
    tags: str = ""
    stamp: str = ""
    """-X settings of the linker, with {version}, {minor}."""
    program: str = ""
    """A program of our own in `programs`, which uses the module."""

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-v{self.version}"

    @property
    def executables(self) -> list[Path]:
        return [self.folder / name for _, name in self.packages]


def cache() -> Path:
    """The folder that everything is built into."""
    named = os.environ.get("DRAGOMAN_REAL")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman" / "real"


def kubernetes(version: str = KUBERNETES) -> Part:
    """The daemons of Kubernetes at a version."""
    names = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet")
    stamp = "".join(
        f"-X k8s.io/component-base/version.{name}={value} "
        for name, value in (
            ("gitVersion", "v{version}"),
            ("gitMajor", "1"),
            ("gitMinor", "{minor}"),
            ("gitTreeState", "clean"),
        )
    ).strip()
    return Part("kubernetes", "k8s.io/kubernetes", version, tuple((f"cmd/{n}", n) for n in names), stamp=stamp)


def _helm(major: int, version: str) -> Part:
    module = f"helm.sh/helm/v{major}"
    stamp = f"-X {module}/internal/version.version=v{{version}}"
    return Part("helm", module, version, (("cmd/helm", "helm"),), stamp=stamp)


OTHERS = (
    Part("etcd", "go.etcd.io/etcd/server/v3", "3.7.3", (("", "etcd"),)),
    Part(
        "containerd",
        "github.com/containerd/containerd/v2",
        "2.4.2",
        tuple((f"cmd/{n}", n) for n in ("containerd", "containerd-shim-runc-v2", "ctr")),
        tags="no_btrfs no_devmapper no_zfs",
    ),
    Part(
        "cni",
        "github.com/containernetworking/plugins",
        "1.10.0",
        (
            ("plugins/main/bridge", "bridge"),
            ("plugins/main/loopback", "loopback"),
            ("plugins/ipam/host-local", "host-local"),
        ),
    ),
    _helm(3, "3.22.0"),
    _helm(4, "4.3.2"),
    Part("kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "5.8.1", (("", "kustomize"),)),
    Part(
        "prometheus",
        "github.com/prometheus/prometheus",
        "0.316.0",
        (("cmd/promtool", "promtool"), ("cmd/prometheus", "prometheus")),
        tags="remove_all_sd",
    ),
)


OPERATORS = (
    Part("bridges", "sigs.k8s.io/controller-runtime", "0.25.2", (("", "bridges"),), program="bridges"),
    Part("informer", "k8s.io/client-go", "0.37.2", (("", "informer"),), program="informer"),
    Part("kueue", "sigs.k8s.io/kueue", "0.17.0", (("cmd/kueue", "kueue"),)),
)
"""What runs on a cluster; `make operators` builds them."""


def parts(versions: tuple[str, ...] = (KUBERNETES,)) -> list[Part]:
    """Everything, in the order in which it is built: what most tests need comes first."""
    etcd, *rest = OTHERS
    return [etcd, *(kubernetes(version) for version in versions), *rest]


def found(name: str, version: str = "") -> Path | None:
    """An executable that was built, by its name; version: of a part that there are several of."""
    for part in (*parts((version or KUBERNETES,)), *OPERATORS):
        if version and part.name in ("kubernetes", "helm") and part.version != version:
            continue
        for executable in part.executables:
            if executable.name == name and executable.exists():
                return executable
    return None


# ---- building


def build(wanted: list[Part], only: frozenset[str] = frozenset()) -> None:
    """Build what is missing. Raises SystemExit with what to do."""
    steps = [
        (part, package, name)
        for part in wanted
        for package, name in part.packages
        if not only or name in only or part.name in only
    ]
    missing = [step for step in steps if not (step[0].folder / step[2]).exists()]
    print(f"{len(steps) - len(missing)} of {len(steps)} executables are in {cache()}", flush=True)
    if not missing:
        return
    _check_go()
    for number, (part, package, name) in enumerate(missing, 1):
        start = time.monotonic()
        print(f"[{number}/{len(missing)}] {name} v{part.version} ...", end=" ", flush=True)
        _build(part, package, part.folder / name)
        print(f"{time.monotonic() - start:.0f} s", flush=True)


def _check_go() -> None:
    go = shutil.which("go")
    if go is None:
        raise SystemExit(f"error: no go in PATH; install Go {GO[0]}.{GO[1]} or newer (https://go.dev/dl)")
    text = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"go(\d+)\.(\d+)", text)
    if version is None or (int(version[1]), int(version[2])) < GO:
        raise SystemExit(f"error: {text.strip()} is too old; install Go {GO[0]}.{GO[1]} or newer")


def _build(part: Part, package: str, target: Path) -> None:
    module = prepare(part)
    stamp = part.stamp.format(version=part.version, minor=part.version.split(".")[1])
    fresh = target.with_name(target.name + ".new")
    target.parent.mkdir(parents=True, exist_ok=True)
    path = f"{part.module}/{package}".rstrip("/")
    if part.program:
        path = "."
        shutil.copy(PROGRAMS / part.program / "main.go", module)
    tags = ["-tags", part.tags] if part.tags else []
    go(module, "build", *tags, "-trimpath", "-ldflags", f"-s -w {stamp}".strip(), "-o", str(fresh), path)
    fresh.replace(target)


def source(part: Part) -> Path:
    """The module's own files, for charts and manifests in it."""
    return Path(json.loads(go(prepare(part), "mod", "download", "-json", f"{part.module}@v{part.version}"))["Dir"])


def prepare(part: Part) -> Path:
    """The folder with a go.mod from which `go build` makes the part's packages, as their own go.mod pins them."""
    folder = cache() / "modules" / f"{part.name}-v{part.version}"
    if (folder / "go.mod").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with (cache() / "modules" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = Path(json.loads(go(folder, "mod", "download", "-json", f"{part.module}@v{part.version}"))["Dir"])
        text = "\n".join(_go_mod(part, (source / "go.mod").read_text()))
        sums = source / "go.sum"
        (folder / "go.sum").write_text(sums.read_text() if sums.exists() else "")
        (folder / "go.mod.new").write_text(text + "\n")
        (folder / "go.mod.new").replace(folder / "go.mod")
    return folder


def _go_mod(part: Part, upstream: str) -> Iterator[str]:
    """A go.mod that requires the part and what it requires itself. Its replacements by folders do not exist outside."""
    staging = re.findall(r"^\t?(?:replace )?(\S+) => \./staging/", upstream, flags=re.MULTILINE)
    staging += re.findall(r"^\t(k8s\.io/\S+) v0\.0\.0(?: // indirect)?$", upstream, flags=re.MULTILINE)
    yield f"module dragoman.test/{part.name}"
    yield from re.findall(r"^go \S+$", upstream, flags=re.MULTILINE)[:1] or ["go 1.26.0"]
    yield f"require {part.module} v{part.version}"
    for module, version in re.findall(r"^(?:require |\t)(\S+) (v\S+)", upstream, flags=re.MULTILINE):
        if version != "v0.0.0" and "=>" not in module:
            yield f"require {module} {version}"
    for module in sorted(set(staging)):
        version = f"v0.{part.version.partition('.')[2]}"
        yield f"require {module} {version}"
        yield f"replace {module} => {module} {version}"


def go(folder: Path, *arguments: str) -> str:
    """Run go in a module of the cache; its standard output. Raises SystemExit with go's own words."""
    settings = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
    done = subprocess.run(["go", *arguments], cwd=folder, env=settings, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"\nerror: go {' '.join(arguments[:2])} in {folder}:\n{(done.stderr or done.stdout)[-3000:]}")
    return done.stdout


# ---- the machine


def lacking_packages() -> list[str]:
    """Debian packages of `DEBIAN` that this machine lacks, looked for by what they bring."""
    brings = {"runc": "runc", "busybox-static": "busybox", "iproute2": "ip"}
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [package for package in DEBIAN if shutil.which(brings[package], path=path) is None]


def install_packages() -> None:
    """Install what is lacking where that is possible, else say what to do. Only full clusters need it."""
    lacking = lacking_packages()
    if not lacking:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *lacking]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"kubelet and containerd also need: {' '.join(lacking)}; as root: {' '.join(command)}", flush=True)
        return
    print(f"installing {' '.join(lacking)} ...", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for one in (command, ["apt-get", "update"], command):
        done = subprocess.run(one, env=quiet, capture_output=True, text=True)
        if one is command and done.returncode == 0:
            return
    print(f"could not: {done.stderr.strip()[-500:]}", flush=True)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.real.build", description="Build real Kubernetes for tests.")
    parser.add_argument("--kubernetes", action="append", metavar="1.NN.P", help=f"default: {KUBERNETES}")
    parser.add_argument("--older", action="store_true", help=f"also {', '.join(OLDER)}")
    parser.add_argument("--only", default="", metavar="NAME,...", help="executables or parts, such as etcd")
    parser.add_argument("--operators", action="store_true", help="what runs on clusters, instead")
    args = parser.parse_args(argv)
    if args.operators:
        build(list(OPERATORS), frozenset(filter(None, args.only.split(","))))
        return
    versions = tuple(args.kubernetes or [KUBERNETES]) + (OLDER if args.older else ())
    build(parts(versions), frozenset(filter(None, args.only.split(","))))
    install_packages()


if __name__ == "__main__":
    main(sys.argv[1:])
