"""A live cluster that says no: one line with what failed, where, for whom, and what to do; never success."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.kubeconfig import of_user
from dragoman.cli.main import guarded
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import load
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.build import claim, device_class, gpus, node, pod

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
COMMANDS = {
    "explain": ["explain"],
    "explain an object": ["explain", "pod/train"],
    "devices": ["devices"],
    "lint": ["lint", "--live", "-f", "pod.yaml"],
    "record": ["record", "-o", "out.json"],
    "get": ["get", "pods"],
    "get yaml": ["get", "claims", "-o", "yaml"],
    "describe": ["describe", "node/n"],
    "apply": ["apply", "-f", "pod.yaml"],
    "delete": ["delete", "pod", "p"],
}


def status(code: int, message: str, **more: Any) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "code": code, "message": message, **more}).encode()


# name -> (status, content type, body, more headers), words of the one line
ANSWERS: dict[str, tuple[tuple[int, str, bytes, dict[str, str]], tuple[str, ...]]] = {
    "401": (
        (401, "application/json", status(401, "Unauthorized"), {}),
        ("does not accept the credentials of user jo, context lab", "log in again"),
    ),
    "403": (
        (403, "application/json", status(403, 'pods is forbidden: User "jo" cannot list resource "pods"'), {}),
        ("forbidden", "user jo, context lab"),
    ),
    "429": (
        (429, "application/json", status(429, "slow down"), {"Retry-After": "9"}),
        ("too many requests (429)", "try again in 9 s"),
    ),
    "a login page": ((200, "text/html", b"<html><title>Sign in</title>", {}), ("an HTML page", "proxy")),
    "a proxy's refusal": ((403, "text/html", b"<html><body>Blocked by policy", {}), ("Blocked by policy", "proxy")),
    "a bad gateway": ((502, "text/html", b"<html><h1>Bad Gateway</h1>", {}), ("502 Bad Gateway", "proxy")),
    "a redirect": ((302, "text/html", b"", {"Location": "https://sso.example.com/"}), ("sso.example.com", "proxy")),
    "another server": ((404, "text/html", b"<html>Not here", {}), ("HTML page", "404")),
    "another API": ((404, "text/plain", b"404 page not found", {}), ("not served",)),
}


class QuietServer(ThreadingHTTPServer):
    """Clients that end at the first refusal leave the other answers unread."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """served(answer): a kubeconfig of a server that answers everything with that."""
    servers: list[ThreadingHTTPServer] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    Path("pod.yaml").write_text(POD)

    def serve(answer: tuple[int, str, bytes, dict[str, str]]) -> str:
        code, content_type, body, more = answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(code)
                for key, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **more}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

            do_DELETE = do_PATCH = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        servers.append(QuietServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return kubeconfig(tmp_path, f"http://127.0.0.1:{servers[-1].server_port}")

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def kubeconfig(folder: Path, server: str, **cluster: Any) -> str:
    file = folder / "kubeconfig"
    config = {
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "jo", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "jo"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return str(file)


def refused(argv: list[str], file: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """The one line that the command says; it must end with 2 and write nothing."""
    assert guarded([*argv, "--kubeconfig", file, *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert not Path("out.json").exists()
    assert "defect" not in said.err
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_server_refuses_is_one_line(
    served: Any, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    answer, words = ANSWERS[name]
    file = served(answer)
    line = refused(COMMANDS[command], file, capsys)
    assert "http://127.0.0.1:" in line
    for word in words:
        assert word in line


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_listens(tmp_path: Path, served: Any, capsys: pytest.CaptureFixture[str], command: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{free.getsockname()[1]}"
        line = refused(COMMANDS[command], kubeconfig(tmp_path, server), capsys)
    assert line == f"error: {server} does not answer: connection refused; is it running?"


@pytest.mark.parametrize("command", ["explain", "record", "get"])
def test_a_time_out_names_its_limit(
    tmp_path: Path, served: Any, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        file = kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        line = refused(COMMANDS[command], file, capsys, "--request-timeout", "200ms")
    assert "did not answer" in line
    assert "within 0.2 s" in line
    assert "--request-timeout" in line


def test_a_host_without_address_and_a_server_without_tls(
    tmp_path: Path, served: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["devices"], kubeconfig(tmp_path, "https://nowhere.invalid:6443"), capsys)
    assert "https://nowhere.invalid:6443 does not answer: its host name is not known" in line
    plain = Path(served((200, "text/plain", b"ok", {}))).read_text().replace("http://", "https://")
    Path("tls").write_text(plain)
    assert "no TLS connection" in refused(["devices"], "tls", capsys)


def test_a_certificate_of_another_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pod.yaml").write_text(POD)
    mine = tmp_path / "lab.kubeconfig"

    async def scenario() -> None:
        async with Cluster(ClusterSettings(nodes=(), kubeconfig=mine, root_dir=tmp_path)):
            server = load([mine]).server
            theirs = kubeconfig(tmp_path, server)  # trusts what the system trusts
            for command in ("explain", "devices", "lint", "record", "get", "apply", "delete"):
                line = await asyncio.to_thread(refused, COMMANDS[command], theirs, capsys)
                assert f"{server}: its certificate is not trusted" in line
                assert "certificate-authority" in line

    asyncio.run(scenario())


# ---- an embedded cluster with users


RIGHTS = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": "team"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
            {
                "apiGroups": ["resource.k8s.io"],
                "resources": ["resourceclaims", "resourceclaimtemplates"],
                "verbs": ["get", "list"],
            },
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader", "namespace": "team"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "ned", "apiGroup": "rbac.authorization.k8s.io"}],
    },
]


def recorded_kinds(name: str) -> set[str]:
    file = Path(name)
    return {item["kind"] for item in json.loads(file.read_text())["items"]} if file.exists() else set()


def test_rights_for_a_namespace_answer_as_far_as_they_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    admin = tmp_path / "lab.kubeconfig"
    ned, zoe = (str(of_user(admin, name)) for name in ("ned", "zoe"))

    async def ask(argv: list[str], file: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(guarded, [*argv, "--kubeconfig", file])
        said = capsys.readouterr()
        assert "defect" not in said.err
        return code, said.out, said.err

    async def scenario() -> None:
        users = (("ned", ()), ("zoe", ()))
        async with Cluster(ClusterSettings(nodes=(), kubeconfig=admin, users=users, root_dir=tmp_path)):
            client = HttpClient(load([admin]), Clock(), Entropy())
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
            theirs = [pod("train", "big"), claim("big", count=3)]
            for made in theirs:
                made["metadata"]["namespace"] = "team"
            for made in [space, *RIGHTS, node("n"), gpus("n", 2), device_class(), *theirs]:
                await client.create(BY_NAME[made["kind"]], made, made["metadata"].get("namespace", ""))

            code, out, err = await ask(["explain", "pod", "train", "-n", "team"], ned)
            assert code == 1, err
            assert "pod team/train is pending; why is not decided here: nodes, resourceslices, deviceclasses" in out
            assert "claim big is not allocated yet" in out
            assert "note: nodes not visible to user" in err
            assert "resourceclaims outside namespace team not visible" in err
            assert "devices that they hold are counted as free" in err

            code, out, err = await ask(["devices", "-n", "team"], ned)
            assert (code, out) == (2, "")
            assert "resourceslices not visible" in err
            code, out, err = await ask(["explain", "node/n", "-n", "team"], ned)
            assert (code, out) == (2, "")
            assert "nodes not visible" in err
            code, out, err = await ask(["record", "-o", "ned.json", "-n", "team"], ned)
            assert code == 0
            assert "note: nodes not visible" in err
            kinds = recorded_kinds("ned.json")
            assert kinds >= {"Pod", "ResourceClaim"}
            assert "Node" not in kinds

            for argv in (["explain"], ["devices"], ["record", "-o", "zoe.json"], ["lint", "--live", "-f", "ned.json"]):
                code, out, err = await ask(argv, zoe)
                assert (code, out) == (2, ""), argv
                (line,) = (line for line in err.splitlines() if line.startswith("error:"))
                assert "nothing is visible" in line
            assert not recorded_kinds("zoe.json")
            code, out, err = await ask(["explain", "--as", "zoe"], str(admin))
            assert code == 2
            assert "as zoe" in err
            code, out, err = await ask(["explain", "pod", "train", "-n", "team"], str(admin))
            assert code == 1
            assert "note:" not in err
            await client.close()

    asyncio.run(scenario())
