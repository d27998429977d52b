"""What is in Dragoman's container image, and how is it made without Docker? Debian's Python, wheels, and our own wheel.

    python tools/make_image.py -o dist            # dist/dragoman-image.tar, its SBOMs, licences and our wheel
    python tools/make_image.py --lock             # take the newest security updates of Debian into the lock

Three layers: the Debian packages of `deploy/image/debian.lock` (fetched by apt-get, checked by their hashes), the
wheels of requirements.txt that Dragoman needs at run time (fetched by pip, checked likewise), and Dragoman. No
maintainer script is run and there is no shell. The same inputs give the same bytes. The first two layers are kept in a
cache folder, $XDG_CACHE_HOME/dragoman/image. deploy/image/Containerfile makes the like where there is Docker or Podman.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

from oci import ARCHITECTURES, EPOCH, File, Layer, folder, layer, read, write
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy" / "image" / "debian.lock"
REQUIREMENTS = ROOT / "requirements.txt"
NAME = "localhost/dragoman"
PYTHON = "3.11"
PACKAGES = {
    "base-files": "GPL-2.0-or-later",
    "libc6": "LGPL-2.1-or-later",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "python3.11-minimal": "PSF-2.0",
    "libpython3.11-minimal": "PSF-2.0",
    "libpython3.11-stdlib": "PSF-2.0",
    "libssl3": "Apache-2.0",
    "zlib1g": "Zlib",
    "libbz2-1.0": "bzip2-1.0.6",
    "liblzma5": "public domain",
    "libffi8": "MIT",
    "libuuid1": "BSD-3-Clause",
    "libexpat1": "MIT",
    "libcrypt1": "LGPL-2.1-or-later",
}
"""Of Debian 12: what Python and the wheels load, with the licence of the part that is in the image (from the package's
copyright file). What their dependencies name beside is for parts that are not used."""
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
USER = 65532
"""nonroot, as in images of others."""
KEEP = re.compile(
    r"^(etc/(debian_version|os-release|ssl/|host.conf|ld.so)|lib|usr/(bin/python|lib/)|usr/share/doc/[^/]+/copyright$)"
)
LEAVE = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data|__pycache__)/|/gconv/|/audit/|\.a$|/engines-3/"
)
WHEELS_LEAVE = re.compile(r"/tests?/|\.(pyi|pyx|pxd|c|h)$")


@dataclass(frozen=True)
class Package:
    """One part of the image: where from ("deb", "pypi"), name, version, hash of what was fetched, licence."""

    source: str
    name: str
    version: str
    sha256: str
    licence: str


class Failed(Exception):
    """What cannot be done, and what to do."""


# ---- Debian


def _debian(cache: Path) -> tuple[dict[str, File], list[Package]]:
    files: dict[str, File] = {}
    packages = []
    for line in LOCK.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, wanted, sha256 = line.split()
        archive = _fetched(cache, name, wanted, sha256)
        found = _unpacked(archive)
        files |= {path: file for path, file in found.items() if KEEP.match(path) and not LEAVE.search(f"/{path}/")}
        packages.append(Package("deb", name, wanted, sha256, PACKAGES[name]))
    # One /usr, as Debian 12 is installed.
    moved = {re.sub(r"^(bin|sbin|lib|lib64)/", r"usr/\1/", path): file for path, file in files.items()}
    moved = {
        path: file for path, file in moved.items() if not (file.folder and path in ("bin", "sbin", "lib", "lib64"))
    }
    moved |= {name: File(link=f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")}
    moved |= {f"usr/bin/{name}": File(link=f"python{PYTHON}") for name in ("python3", "python")}
    moved |= {name: folder() for name in ("dev", "proc", "sys", "run", "var/run", "usr/sbin", "usr/lib64", "etc")}
    moved["tmp"] = folder(0o1777)
    moved["etc/passwd"] = File(f"root:x:0:0:root:/:/none\nnonroot:x:{USER}:{USER}:nonroot:/:/none\n".encode())
    moved["etc/group"] = File(f"root:x:0:\nnonroot:x:{USER}:\n".encode())
    moved["etc/nsswitch.conf"] = File(b"hosts: files dns\n")
    return moved, packages


def _fetched(cache: Path, name: str, version: str, sha256: str) -> Path:
    kept = cache / "debs" / f"{sha256}.deb"
    if kept.exists():
        return kept
    if shutil.which("apt-get") is None:
        raise Failed(
            "there is no apt-get here: build the image on Debian or Ubuntu, or with deploy/image/Containerfile"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        done = _run("apt-get", "download", "-q", f"{name}={version}", cwd=place, ok=None)
        found = list(place.glob("*.deb"))
        if not found:
            raise Failed(
                f"Debian's mirror has no {name} {version}: run `apt-get update`, or take the newest versions with "
                f"`python tools/make_image.py --lock`\n{done.stderr.strip()[-300:]}"
            )
        data = found[0].read_bytes()
        if (seen := hashlib.sha256(data).hexdigest()) != sha256:
            raise Failed(f"{name} {version} has the hash {seen}, {LOCK.name} says {sha256}")
        _keep(kept, data)
    return kept


def _unpacked(archive: Path) -> dict[str, File]:
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(archive)], capture_output=True, check=True)
    return read(done.stdout)


def lock() -> None:
    """Write debian.lock anew with the versions that apt knows."""
    rows = []
    for name in PACKAGES:
        shown = _run("apt-cache", "show", "--no-all-versions", name).stdout
        fields = dict(re.findall(r"^(Version|SHA256): (\S+)$", shown, flags=re.MULTILINE))
        rows.append(f"{name} {fields['Version']} {fields['SHA256']}")
    head = "# Debian 12 packages of the image, amd64: name, version, SHA-256. Made by tools/make_image.py --lock.\n"
    LOCK.write_text(head + "\n".join(rows) + "\n")


# ---- wheels


def _pins() -> dict[str, str]:
    """Names and versions of requirements.txt."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", REQUIREMENTS.read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): pin for name, pin in found}


def _wheels(cache: Path) -> list[Path]:
    """Those that Dragoman needs at run time."""
    place = cache / "wheels" / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    if not (place / "whole").exists():
        place.mkdir(parents=True, exist_ok=True)
        tags = [f"manylinux_2_{minor}_{platform.machine()}" for minor in range(36, 4, -1)]
        tags += [f"manylinux2014_{platform.machine()}", f"manylinux2010_{platform.machine()}"]
        kinds = [part for tag in tags for part in ("--platform", tag)]
        kinds += ["--python-version", PYTHON, "--implementation", "cp"]
        kinds += ["--abi", f"cp{PYTHON.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        done = _run(
            *pip,
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "-r",
            str(REQUIREMENTS),
            *kinds,
            "-d",
            str(place),
            ok=None,
        )
        if done.returncode:
            raise Failed(f"pip could not fetch the wheels of {REQUIREMENTS.name}:\n{done.stderr.strip()[-800:]}")
        (place / "whole").touch()
    there = {parse_wheel_filename(one.name)[0]: one for one in sorted(place.glob("*.whl"))}
    needed: dict[str, Path] = {}
    todo = [canonicalize_name(Requirement(one).name) for one in _own_dependencies()]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        if name not in there:
            raise Failed(f"{name} is needed and not in {REQUIREMENTS.name}")
        needed[name] = there[name]
        environment = {"extra": "", "python_version": PYTHON, "python_full_version": f"{PYTHON}.2"}
        for one in _metadata(there[name]).get_all("Requires-Dist", []):
            wanted = Requirement(one)
            if wanted.marker is None or wanted.marker.evaluate(environment):
                todo.append(canonicalize_name(wanted.name))
    return [needed[name] for name in sorted(needed)]


def _own_dependencies() -> list[str]:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["project"]["dependencies"])


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
        return Parser().parsestr(archive.read(name).decode())


def _installed(wheel: Path) -> dict[str, File]:
    """Files of a wheel where pip would put them; scripts and headers are left out."""
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", entry.filename)
            if entry.is_dir() or ".data/" in path:
                continue
            mode = 0o755 if (entry.external_attr >> 16) & 0o111 else 0o644
            files[f"{SITE}/{path}"] = File(archive.read(entry), mode)
    return files


def _package(wheel: Path) -> Package:
    about = _metadata(wheel)
    licence = about.get("License-Expression") or ""
    if not licence:
        classes = [one for one in about.get_all("Classifier", []) if one.startswith("License ::")]
        text = (about.get("License") or "").strip()
        licence = ", ".join(one.rpartition(" :: ")[2] for one in classes) or (text if "\n" not in text else "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Package("pypi", str(about["Name"]), str(about["Version"]), digest, licence or "see its files")


def own_wheel(target: Path) -> Path:
    """Dragoman's wheel, the same bytes each time."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    with tempfile.TemporaryDirectory() as made:
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made)
        done = _run(*command, cwd=ROOT, environment=environment, ok=None)
        found = list(Path(made).glob("*.whl"))
        if not found:
            raise Failed(f"the wheel could not be built:\n{(done.stderr or done.stdout).strip()[-800:]}")
        return Path(shutil.copy(found[0], target / found[0].name))


# ---- layers


def _compiled(files: dict[str, File], python: Mapping[str, File]) -> dict[str, File]:
    """The files with the bytecode of their modules, made by the image's own Python; nothing is written when it runs."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        _lay(place, {**python, **files})
        loader = next((place / "usr/lib").rglob("ld-linux-*.so.*"))
        libraries = next((place / "usr/lib").glob("*-linux-gnu"))
        todo = [str(place / path) for path in sorted(files) if path.endswith(".py")]
        listed = place / "compile.txt"
        listed.write_text("\n".join(todo))
        command = [str(loader), "--library-path", str(libraries), str(place / f"usr/bin/python{PYTHON}"), "-S", "-B"]
        _run(
            *(*command, "-m", "compileall", "-q", "-i", str(listed), "-s", str(place), "-p", "/"),
            *("--invalidation-mode", "unchecked-hash"),
            cwd=place,
            environment={"PYTHONHOME": str(place / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
            ok=None,  # templates that are no Python are no reason to stop
        )
        found = dict(files)
        for one in sorted(place.rglob("*.pyc")):
            path = one.relative_to(place).as_posix()
            if path not in python:
                found[path] = File(one.read_bytes())
        return found


def _lay(place: Path, files: Mapping[str, File]) -> None:
    for path in sorted(files, key=lambda one: (not files[one].folder, not files[one].link, one)):
        file, target = files[path], place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.folder:
            target.mkdir(exist_ok=True)
        elif file.link:
            if not (target.exists() or target.is_symlink()):
                target.symlink_to(file.link)
        else:
            target.write_bytes(file.data)
            target.chmod(file.mode | stat.S_IWUSR)


def _base(cache: Path) -> tuple[dict[str, File], list[Package], list[Layer]]:
    """Debian's files, everything but Dragoman, and their two layers."""
    sources = (Path(__file__).read_bytes(), (ROOT / "tools/oci.py").read_bytes(), LOCK.read_bytes())
    key = hashlib.sha256(b"".join((*sources, REQUIREMENTS.read_bytes()))).hexdigest()[:24]
    kept = [cache / f"base-{key}" / name for name in ("debian.tar.gz", "wheels.tar.gz", "packages.json")]
    if kept[-1].exists():
        layers = [Layer.of(one.read_bytes()) for one in kept[:2]]
        return read(layers[0].text), [Package(**one) for one in json.loads(kept[-1].read_text())], layers
    wheels = _wheels(cache)
    python, packages = _debian(cache)
    python = _compiled(python, {})
    files: dict[str, File] = {}
    for wheel in wheels:
        found = _installed(wheel)
        files |= {path: file for path, file in found.items() if not WHEELS_LEAVE.search(path)}
        packages.append(_package(wheel))
    layers = [layer(python), layer(_compiled(files, python))]
    packed = json.dumps([asdict(one) for one in packages]).encode()
    for path, data in zip(kept, (*(one.packed for one in layers), packed), strict=True):
        _keep(path, data)
    return python, packages, layers


def _own(wheel: Path, python: Mapping[str, File], texts: Mapping[str, bytes]) -> Layer:
    files = _compiled(_installed(wheel), python)
    for name, entry in (("dragoman", "run"), ("kubectl-dra", "run_as_plugin")):
        code = f"#!/usr/bin/python3\nimport sys\nfrom dragoman.cli.main import {entry}\nsys.exit({entry}())\n"
        files[f"usr/local/bin/{name}"] = File(code.encode(), 0o755)
    files |= {f"usr/share/dragoman/{name}": File(text) for name, text in texts.items()}
    return layer(files)


# ---- what is inside


def sbom(name: str, version: str, packages: Iterable[Package], digest: str = "") -> bytes:
    """An SPDX 2.3 document: what `name` is made of."""
    about = {
        "SPDXID": "SPDXRef-Root",
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    }
    if digest:
        about["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
    listed = [about, *(_spdx(one) for one in packages)]
    edges = [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-Root"}
    ]
    edges += [
        {"spdxElementId": "SPDXRef-Root", "relationshipType": "CONTAINS", "relatedSpdxElement": one["SPDXID"]}
        for one in listed[1:]
    ]
    body = {"name": f"{name}-{version}", "packages": listed, "relationships": edges}
    unique = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "documentNamespace": f"https://dragoman.dev/spdx/{name}-{version}-{unique[:32]}",
        "creationInfo": {"created": "2020-01-01T00:00:00Z", "creators": ["Tool: dragoman-make_image"]},
        **body,
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _spdx(one: Package) -> dict[str, object]:
    version = one.version.replace(":", "%3A").replace("+", "%2B")
    url = (
        f"pkg:deb/debian/{one.name}@{version}?distro=bookworm"
        if one.source == "deb"
        else f"pkg:pypi/{one.name}@{version}"
    )
    return {
        "SPDXID": f"SPDXRef-{one.source}-{re.sub(r'[^A-Za-z0-9.-]', '-', one.name)}",
        "name": one.name,
        "versionInfo": one.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": one.sha256}],
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": f"as the package says: {one.licence}",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url},
        ],
    }


def licences(packages: Iterable[Package]) -> bytes:
    """A table for people."""
    rows = [f"{one.name:28} {one.version:28} {one.licence}" for one in packages]
    head = "What is in the image beside Dragoman (Apache-2.0), and its licences as each package names them.\n"
    head += f"The texts are in /usr/share/doc/NAME/copyright and /{SITE}/NAME.dist-info.\n\n"
    return (head + "\n".join(rows) + "\n").encode()


# ---- putting it together


def build(target: Path, cache: Path, name: str) -> str:
    """Everything into the folder `target`; the image's digest."""
    target.mkdir(parents=True, exist_ok=True)
    machine = ARCHITECTURES.get(platform.machine())
    if machine != "amd64":
        raise Failed(f"{LOCK.name} is for amd64; this machine is {platform.machine()}")
    python, packages, layers = _base(cache)
    wheel = own_wheel(target)
    version = str(parse_wheel_filename(wheel.name)[1])
    listed = sbom("dragoman-image", version, packages)
    texts = {"sbom.spdx.json": listed, "licences.txt": licences(packages)}
    for file, text in texts.items():
        (target / f"dragoman-image.{file}").write_bytes(text)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted = [one for one in packages if one.source == "pypi"]
    (target / f"dragoman-{version}.sbom.spdx.json").write_bytes(sbom("dragoman", version, wanted, digest))
    config = {
        "User": f"{USER}:{USER}",
        "Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"],
        "Entrypoint": ["/usr/local/bin/dragoman"],
        "WorkingDir": "/",
        "Labels": {"org.opencontainers.image.title": "dragoman", "org.opencontainers.image.version": version},
    }
    layers.append(_own(wheel, python, texts))
    return write(target / "dragoman-image.tar", name if ":" in name else f"{name}:{version}", layers, config, machine)


def _run(
    *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None, ok: bool | None = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if ok and done.returncode:
        raise Failed(f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(data)
    fresh.replace(path)


def default_cache() -> Path:
    """Where what was fetched is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman" / "image"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make_image", description="Build Dragoman's container image without Docker.")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", metavar="DIR")
    parser.add_argument(
        "--name", default=NAME, help="of the image, with a tag or without; default: %(default)s:VERSION"
    )
    parser.add_argument("--lock", action="store_true", help="write deploy/image/debian.lock anew and end")
    args = parser.parse_args(argv)
    try:
        if args.lock:
            lock()
        else:
            print(build(args.output, default_cache(), args.name), args.output / "dragoman-image.tar")
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
