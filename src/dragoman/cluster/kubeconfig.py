"""Where is the API server, and who are we there? Reads kubeconfig files and the files of a pod.

Never connects. What is wrong in a file is Invalid with file and field; a missing file says what to do.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api import yamltext
from dragoman.errors import Invalid, NotFound

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ExecPlugin(msgspec.Struct, frozen=True):
    """A command that prints an ExecCredential."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    provide_cluster: bool = False
    install_hint: str = ""


class Access(msgspec.Struct, frozen=True):
    """How to reach a server and as whom. PEM parts are bytes; files are read when the access is loaded, except
    token_file, which changes while we run."""

    server: str
    ca_pem: bytes | None = None
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    cert_pem: bytes | None = None
    key_pem: bytes | None = None
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec: ExecPlugin | None = None
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_uid: str = ""
    impersonate_extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    request_timeout_s: float | None = None
    """None: the client's own limit; 0: no limit."""
    namespace: str = "default"
    context: str = ""
    user: str = ""
    """The kubeconfig's name of the user."""

    @property
    def who(self) -> str:
        """Who we are there, for messages: as the kubeconfig names it."""
        user = f"user {self.user}" if self.user else "no user"
        acting = f" as {self.impersonate}" if self.impersonate else ""
        return f"{user}{acting}, context {self.context}" if self.context else f"{user}{acting}"


def find(path: str | None = None, context: str | None = None, environ: Mapping[str, str] | None = None) -> Access:
    """As kubectl finds it: the file given, else $KUBECONFIG, else ~/.kube/config, else the pod we run in.

    Raises NotFound when there is none, Invalid for a broken one.
    """
    environ = os.environ if environ is None else environ
    if path:
        return load([Path(path)], context)
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if any(file.is_file() for file in listed):
        return load(listed, context)
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not listed and home.is_file():
        return load([home], context)
    if "KUBERNETES_SERVICE_HOST" in environ and (SERVICE_ACCOUNT / "token").is_file():
        return in_cluster(environ)
    tried = os.pathsep.join(map(str, listed)) or str(home)
    raise NotFound(f"no kubeconfig at {tried}; name one with --kubeconfig, or start a cluster with `dragoman up`")


def in_cluster(environ: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT) -> Access:
    """The access of a pod's service account."""
    environ = os.environ if environ is None else environ
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Access(
        server=f"https://{host}:{port}",
        ca_pem=_read(folder / "ca.crt", "service account"),
        token_file=str(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        context="in-cluster",
        user="service account",
    )


def load(files: list[Path], context: str | None = None) -> Access:
    """The access of a context (default: the current one) of merged files; what comes first wins, as for kubectl."""
    merged = _Merged()
    present = [file for file in files if file.is_file()]
    if not present:
        raise NotFound(f"no kubeconfig at {', '.join(map(str, files))}")
    for file in present:
        merged.add(file)
    return merged.access(context)


class _Merged:
    def __init__(self) -> None:
        self.current = ""
        self.named: dict[str, dict[str, tuple[Path, dict[str, Any]]]] = {"clusters": {}, "users": {}, "contexts": {}}
        self.files: list[Path] = []

    def add(self, file: Path) -> None:
        self.files.append(file)
        try:
            document = yamltext.parse_exact(file.read_text(encoding="utf-8"), str(file))
        except UnicodeDecodeError:
            raise Invalid(str(file), "must be YAML in UTF-8") from None
        except OSError as error:
            raise Invalid(str(file), f"cannot be read: {error.strerror}") from None
        if document is None:
            return
        if not isinstance(document, dict):
            raise Invalid(str(file), "must be a kubeconfig: an object with clusters, users and contexts")
        self.current = self.current or document.get("current-context") or ""
        for section, single in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for index, entry in enumerate(document.get(section) or []):
                if not isinstance(entry, dict) or "name" not in entry:
                    raise Invalid(f"{file}: {section}[{index}]", "must be an object with a name")
                self.named[section].setdefault(str(entry["name"]), (file, entry.get(single) or {}))

    def find(self, section: str, name: str, wanted_by: str) -> tuple[Path, dict[str, Any]]:
        found = self.named[section].get(name)
        if found is None:
            known = ", ".join(sorted(self.named[section])) or "none"
            raise Invalid(f"{self.files[0]}: {wanted_by}", f"no {section[:-1]} named {name!r}; there are: {known}")
        return found

    def access(self, context: str | None) -> Access:
        chosen = context or self.current
        if not chosen and len(self.named["contexts"]) == 1:
            chosen = next(iter(self.named["contexts"]))
        if not chosen:
            raise Invalid(f"{self.files[0]}: current-context", "is not set; choose one with --context")
        _, ctx = self.find("contexts", chosen, "context")
        cluster_file, cluster = self.find("clusters", str(ctx.get("cluster", "")), f"contexts[{chosen}].cluster")
        user_file: Path = Path()
        user: dict[str, Any] = {}
        if ctx.get("user"):
            user_file, user = self.find("users", str(ctx["user"]), f"contexts[{chosen}].user")
        server = cluster.get("server")
        if not server:
            raise Invalid(f"{cluster_file}: clusters[{ctx.get('cluster')}].server", "must be a URL")
        if user.get("auth-provider"):
            raise Invalid(f"{user_file}: users[{ctx['user']}].auth-provider", "is no longer supported; use exec")
        token_file = user.get("tokenFile")
        return Access(
            server=str(server).rstrip("/"),
            ca_pem=_pem(cluster_file, cluster, "certificate-authority"),
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
            tls_server_name=str(cluster.get("tls-server-name") or ""),
            proxy_url=str(cluster.get("proxy-url") or ""),
            cert_pem=_pem(user_file, user, "client-certificate"),
            key_pem=_pem(user_file, user, "client-key"),
            # As for client-go: a tokenFile wins over a token.
            token="" if token_file else str(user.get("token") or ""),
            token_file=str(_beside(user_file, token_file)) if token_file else "",
            username=str(user.get("username") or ""),
            password=str(user.get("password") or ""),
            exec=_exec(user_file, user.get("exec")),
            impersonate=str(user.get("as") or ""),
            impersonate_groups=tuple(map(str, user.get("as-groups") or ())),
            impersonate_uid=str(user.get("as-uid") or ""),
            impersonate_extra=_extra(user_file, user.get("as-user-extra")),
            namespace=str(ctx.get("namespace") or "default"),
            context=chosen,
            user=str(ctx.get("user") or ""),
        )


def _extra(file: Path, given: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not given:
        return ()
    if not isinstance(given, dict) or not all(isinstance(values, list) for values in given.values()):
        raise Invalid(f"{file}: user.as-user-extra", "must be an object of lists")
    return tuple((str(key), tuple(map(str, values))) for key, values in given.items())


def _exec(file: Path, spec: Any) -> ExecPlugin | None:
    if not spec:
        return None
    command = str(spec.get("command") or "")
    if not command:
        raise Invalid(f"{file}: user.exec.command", "must name a program")
    if os.sep in command and not Path(command).is_absolute():
        command = str(_beside(file, command))
    return ExecPlugin(
        command=command,
        args=tuple(str(a) for a in spec.get("args") or ()),
        env=tuple((str(e["name"]), str(e["value"])) for e in spec.get("env") or ()),
        api_version=str(spec.get("apiVersion") or "client.authentication.k8s.io/v1"),
        provide_cluster=bool(spec.get("provideClusterInfo")),
        install_hint=str(spec.get("installHint") or ""),
    )


def _pem(file: Path, entry: dict[str, Any], field: str) -> bytes | None:
    if inline := entry.get(f"{field}-data"):
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(f"{file}: {field}-data", "must be base64") from None
    if path := entry.get(field):
        return _read(_beside(file, path), f"{file}: {field}")
    return None


def _beside(file: Path, path: Any) -> Path:
    """Relative paths of a kubeconfig are relative to its folder."""
    return file.parent / str(path)


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(where, f"cannot read {path}: {error.strerror}") from None
