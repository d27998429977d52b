"""Kubeconfig files as kubectl reads them."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cluster import kubeconfig
from dragoman.cluster.credentials import Credentials
from dragoman.cluster.proxies import proxy_of
from dragoman.errors import Denied, Invalid, NotFound
from dragoman.runtime.clock import Clock


def config(**changes: Any) -> dict[str, Any]:
    return {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", **changes.get("cluster", {})}}],
        "users": [{"name": "u", "user": changes.get("user", {"token": "t"})}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
            {"name": "two", "context": {"cluster": "c"}},
        ],
    }


def write(folder: Path, content: Any, name: str = "config") -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def test_contexts_and_relative_files(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"CA")
    cluster = {
        "certificate-authority": "ca.crt",
        "tls-server-name": "kubernetes",
        "proxy-url": "http://127.0.0.1:3128",
    }
    user = {"client-certificate-data": base64.b64encode(b"CERT").decode(), "client-key-data": "S0VZ"}
    file = write(tmp_path, config(cluster=cluster, user=user))
    access = kubeconfig.find(str(file))
    assert (access.server, access.namespace, access.context) == ("https://127.0.0.1:6443", "ns", "one")
    assert (access.ca_pem, access.cert_pem, access.key_pem) == (b"CA", b"CERT", b"KEY")
    assert (access.tls_server_name, access.proxy_url) == ("kubernetes", "http://127.0.0.1:3128")
    two = kubeconfig.find(str(file), "two")
    assert (two.namespace, two.token, two.cert_pem) == ("default", "", None)


def test_files_of_the_environment_are_merged_first_wins(tmp_path: Path) -> None:
    first = write(tmp_path, {"users": [{"name": "u", "user": {"token": "first"}}]}, "a")
    second = write(tmp_path, config(), "b")
    access = kubeconfig.find(environ={"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}"})
    assert access.token == "first"


def test_a_pod_finds_its_service_account(tmp_path: Path) -> None:
    for name, content in {"token": "t", "ca.crt": "CA", "namespace": "gpu\n"}.items():
        (tmp_path / name).write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = kubeconfig.in_cluster(environ, tmp_path)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "gpu")
    assert access.token_file == str(tmp_path / "token")


WRONG: dict[str, tuple[Any, str]] = {
    "no YAML": ("{", "broken YAML"),
    "no object": ("[]", "must be a kubeconfig"),
    "no such context": ({**config(), "current-context": "x"}, "no context named 'x'; there are: one, two"),
    "no current context": ({**config(), "current-context": ""}, "choose one with --context"),
    "no such cluster": ({**config(), "clusters": []}, "no cluster named 'c'"),
    "no server": (config(cluster={"server": ""}), "must be a URL"),
    "no base64": (config(cluster={"certificate-authority-data": "***"}), "must be base64"),
    "no such file": (config(cluster={"certificate-authority": "nowhere"}), "cannot read"),
    "an old plugin": (config(user={"auth-provider": {"name": "gcp"}}), "use exec"),
    "a plugin without command": (config(user={"exec": {"args": ["x"]}}), "must name a program"),
    "an entry without name": ({**config(), "users": ["u"]}, r"users\[0\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    content, words = WRONG[name]
    file = write(tmp_path, content)
    with pytest.raises(Invalid, match=words) as caught:
        kubeconfig.find(str(file))
    assert str(file) in str(caught.value)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no kubeconfig at"):
        kubeconfig.find(str(tmp_path / "nowhere"))
    with pytest.raises(NotFound, match="dragoman up"):
        kubeconfig.find(environ={"HOME": str(tmp_path)})


def headers(access: kubeconfig.Access, clock: Clock | None = None) -> dict[str, str]:
    return asyncio.run(Credentials(access, clock or Clock()).headers())


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    access = kubeconfig.find(str(write(tmp_path, config(user={"tokenFile": "token", "token": "ignored"}))))

    async def run() -> list[str]:
        clock = Clock()
        credentials = Credentials(access, clock)
        seen = [(await credentials.headers())["Authorization"]]
        token.write_text("two")
        seen.append((await credentials.headers())["Authorization"])
        clock.advance(61)
        seen.append((await credentials.headers())["Authorization"])
        return seen

    assert asyncio.run(run()) == ["Bearer one", "Bearer one", "Bearer two"]


def test_basic_and_impersonation() -> None:
    sent = headers(kubeconfig.Access(server="http://x", username="a", password="b", impersonate="jane"))
    assert sent == {"Authorization": "Basic YTpi", "Impersonate-User": "jane"}


def test_an_exec_plugin_gives_a_token_until_it_expires(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import json, os, pathlib\n"
        "counter = pathlib.Path(os.environ['COUNTER'])\n"
        "n = int(counter.read_text() or 0) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(n))\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "status = {'token': f\"{info['spec']['cluster']['server']}#{n}\", 'expirationTimestamp': '2030-01-01T00:00:00Z'}\n"
        "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': info['apiVersion'], 'status': status}))\n",
        "plugin.py",
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script)],
        "env": [{"name": "COUNTER", "value": str(tmp_path / "n")}],
        "provideClusterInfo": True,
    }
    access = kubeconfig.find(str(write(tmp_path, config(user={"exec": plugin}))))

    async def run() -> list[str]:
        clock = Clock(wall=lambda: 1.8e9)
        credentials = Credentials(access, clock)
        seen = [(await credentials.headers())["Authorization"], (await credentials.headers())["Authorization"]]
        clock.advance(2.0e8)
        seen.append((await credentials.headers())["Authorization"])
        return seen

    server = "https://127.0.0.1:6443"
    assert asyncio.run(run()) == [f"Bearer {server}#1", f"Bearer {server}#1", f"Bearer {server}#2"]


PLUGINS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"command": "./nowhere", "installHint": "install it"}, "does not start.*install it"),
    "failing": (
        {"command": sys.executable, "args": ["-c", "import sys; sys.exit('log in first')"]},
        "failed with 1: log in first",
    ),
    "talking": ({"command": sys.executable, "args": ["-c", "print('hi')"]}, "printed no ExecCredential"),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_that_fails_is_denied_with_what_it_said(tmp_path: Path, name: str) -> None:
    plugin, words = PLUGINS[name]
    access = kubeconfig.find(str(write(tmp_path, config(user={"exec": plugin}))))
    with pytest.raises(Denied, match=words):
        headers(access)


def test_plain_json_is_a_kubeconfig_too(tmp_path: Path) -> None:
    assert kubeconfig.find(str(write(tmp_path, json.dumps(config())))).token == "t"


def test_whom_a_user_acts_as(tmp_path: Path) -> None:
    user = {"token": "t", "as": "eve", "as-uid": "u-7", "as-groups": ["ops", "gpu"], "as-user-extra": {"x/y": ["1"]}}
    access = kubeconfig.find(str(write(tmp_path, config(user=user))))
    credentials = Credentials(access, Clock())
    sent = asyncio.run(credentials.headers())
    assert (sent["Impersonate-User"], sent["Impersonate-Uid"]) == ("eve", "u-7")
    assert credentials.repeated() == [
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "gpu"),
        ("Impersonate-Extra-x%2Fy", "1"),
    ]
    assert access.who == "user u as eve, context one"


SERVER = "https://api.example.com:6443"
PROXIES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "none": (SERVER, "", {}, ""),
    "of the cluster": (SERVER, "http://p:1", {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "*"}, "http://p:1"),
    "of the environment": (SERVER, "", {"https_proxy": "q:2"}, "http://q:2"),
    "of another scheme": (SERVER, "", {"HTTP_PROXY": "http://q:2"}, ""),
    "not for this domain": (SERVER, "", {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "x.org, example.com"}, ""),
    "for the domain, not below": (SERVER, "", {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "ple.com"}, "http://q:2"),
    "not for this port": (SERVER, "", {"HTTPS_PROXY": "http://q:2", "NO_PROXY": ".example.com:6443"}, ""),
    "for another port": (SERVER, "", {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "example.com:443"}, "http://q:2"),
    "not for this network": ("https://10.3.2.1", "", {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "10.0.0.0/8"}, ""),
    "never for loopback": ("https://127.0.0.5:6443", "", {"HTTPS_PROXY": "http://q:2"}, ""),
}


@pytest.mark.parametrize("name", PROXIES)
def test_proxies_are_chosen_as_kubectl_does(name: str) -> None:
    server, proxy_url, environ, expected = PROXIES[name]
    assert proxy_of(server, proxy_url, environ) == expected


def test_a_proxy_that_is_not_spoken_to_is_named() -> None:
    with pytest.raises(Invalid, match="socks5 proxies are not supported"):
        proxy_of(SERVER, "socks5://127.0.0.1:1080", {})
