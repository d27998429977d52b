"""Does the server start, keep its secrets to its owner, come back with the same state, and end?"""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver import certificates
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import Access, load
from dragoman.errors import Denied, Invalid, Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

POD, MAP, NODE = BY_NAME["Pod"], BY_NAME["ConfigMap"], BY_NAME["Node"]


def client_of(access: Access) -> HttpClient:
    return HttpClient(access, Clock(), Entropy())


def test_secrets_are_for_the_owners_eyes_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = ServerConfig(data=tmp_path / "data", kubeconfig=tmp_path / "kubeconfig")
        async with serving(config, Clock(), Entropy()):
            assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
            secret = [tmp_path / "kubeconfig", *(tmp_path / "data").glob("token*"), *(tmp_path / "data/tls").iterdir()]
            assert {stat.S_IMODE(file.stat().st_mode) for file in secret} == {0o600}
            kubeconfig = yaml.safe_load((tmp_path / "kubeconfig").read_text())
            assert kubeconfig["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
            client = client_of(load([tmp_path / "kubeconfig"]))
            assert len((await client.list(BY_NAME["Namespace"])).items) == 4
            await client.close()

    asyncio.run(scenario())


def test_another_ca_and_a_wrong_token_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(), Clock(), Entropy()) as server:
            access = server.access
            assert access.ca_pem is not None
            wrong = client_of(Access(access.server, access.ca_pem, token="wrong"))
            with pytest.raises(Denied):
                await wrong.list(NODE)
            await wrong.close()
            _, _, ca = certificates.ensure(tmp_path, "127.0.0.1", Clock().utc())
            stranger = client_of(Access(access.server, ca.encode(), token=access.token))
            with pytest.raises((Denied, Retry)):
                await stranger.list(NODE)
            await stranger.close()

    asyncio.run(scenario())


def test_certificates_are_made_once_and_for_the_names_asked(tmp_path: Path) -> None:
    now = Clock().utc()
    file, key, ca = certificates.ensure(tmp_path, "127.0.0.1", now)
    first = file.read_bytes()
    assert certificates.ensure(tmp_path, "127.0.0.1", now)[2] == ca
    assert file.read_bytes() == first
    context = ssl.create_default_context(cadata=ca)
    assert context.get_ca_certs()[0]["subject"] == ((("commonName", "dragoman-ca"),),)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key)
    certificates.ensure(tmp_path, "10.0.0.7", now)
    assert file.read_bytes() != first


def test_a_certificate_from_the_future_is_made_again(tmp_path: Path) -> None:
    now = Clock().utc()
    file, _, _ = certificates.ensure(tmp_path, "127.0.0.1", now + timedelta(hours=2))
    ahead = file.read_bytes()
    certificates.ensure(tmp_path, "127.0.0.1", now)
    assert file.read_bytes() != ahead


@pytest.mark.slow
def test_state_token_port_and_ca_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async def once(work: str) -> tuple[Access, str]:
        async with serving(ServerConfig(data=tmp_path), Clock(), Entropy()) as server:
            client = client_of(server.access)
            if work == "write":
                made = await client.create(MAP, {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default")
            else:
                made = await client.get(MAP, "a", "default")
                events = client.watch(MAP, made["metadata"]["resourceVersion"], "default")
                await client.delete(MAP, "a", "default")
                assert (await anext(events)).type == "DELETED", "a watch goes on over the restart"
                await events.aclose()  # type: ignore[attr-defined]
            await client.close()
            return server.access, made["metadata"]["resourceVersion"]

    first = asyncio.run(once("write"))
    assert asyncio.run(once("read")) == first


def test_a_port_in_use_and_a_folder_in_use_are_one_clear_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(Denied, match=rf"cannot listen on 127.0.0.1:{port}: .*choose another port"):
                async with serving(ServerConfig(port=port), Clock(), Entropy()):
                    pass
        async with serving(ServerConfig(data=tmp_path), Clock(), Entropy()):
            with pytest.raises(Denied, match="in use by another process"):
                async with serving(ServerConfig(data=tmp_path), Clock(), Entropy()):
                    pass

    asyncio.run(scenario())


def test_what_the_system_refuses_is_one_clear_line(tmp_path: Path) -> None:
    async def start(config: ServerConfig) -> None:
        async with serving(config, Clock(), Entropy()):
            pytest.fail("this cannot start")

    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(Invalid, match=f"{file}: is a file"):
        asyncio.run(start(ServerConfig(data=file)))
    with pytest.raises(Denied, match=f"{file}/below: Not a directory"):
        asyncio.run(start(ServerConfig(data=file / "below")))
    with pytest.raises(Denied, match=r"nowhere/.*kubeconfig"):
        asyncio.run(start(ServerConfig(kubeconfig=tmp_path / "nowhere/kubeconfig")))
    with pytest.raises(Invalid, match="port: must be 0 to 65535, got 70000"):
        asyncio.run(start(ServerConfig(port=70000)))


def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(), Clock(), Entropy()):
            raise Invalid("here", "wrong")

    with pytest.raises(Invalid, match="here: wrong"):
        asyncio.run(scenario())


def test_open_watches_do_not_hold_up_the_end() -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(tls=False), Clock(), Entropy()) as server:
            client = client_of(server.access)
            listed = await client.list(NODE)
            watch = client.watch(NODE, listed.resource_version)
            reading = asyncio.create_task(anext(watch, None))
            await client.create(NODE, {"metadata": {"name": "n"}})
            assert (await reading).type == "ADDED"
            reading = asyncio.create_task(anext(watch, None))
        async with asyncio.timeout(10):
            last = await reading
            assert last is None or last.type == "BOOKMARK"
        await watch.aclose()  # type: ignore[attr-defined]
        await client.close()

    asyncio.run(scenario())


SERVER = """
import asyncio, sys
from pathlib import Path
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

async def main():
    folder = Path(sys.argv[1])
    async with serving(ServerConfig(data=folder, kubeconfig=folder / "kubeconfig"), Clock(), Entropy()):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_kill_9_of_the_whole_server_under_load(tmp_path: Path) -> None:
    """Clients write over HTTP until the server is killed; every answer they got still holds afterwards."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    folder = tmp_path / "data"
    answered: dict[str, str] = {}

    async def load_until_killed(process: subprocess.Popen[str], round_: int) -> None:
        client = client_of(load([folder / "kubeconfig"]))
        for name, value in answered.items():
            got = await client.get(MAP, name, "default")
            assert int(got["data"]["v"]) >= int(value), f"{name} is older than what was answered"

        async def write(lane: int) -> None:
            try:
                for at in range(100_000):
                    name = f"r{round_}-l{lane}-{at % 3}"
                    if at < 3:
                        await client.create(MAP, {"metadata": {"name": name}, "data": {"v": str(at)}}, "default")
                    else:
                        await client.patch(MAP, name, {"data": {"v": str(at)}}, "default")
                    answered[name] = str(at)
                    if lane == 0 and at == 40:
                        process.kill()
            except Retry:
                return

        async with asyncio.TaskGroup() as tasks:
            for lane in range(8):
                tasks.create_task(write(lane))
        await client.close()

    for round_ in range(4):
        process = subprocess.Popen([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        asyncio.run(load_until_killed(process, round_))
        assert process.wait(10) == -9
        process.stdout.close()
    assert len(answered) == 4 * 8 * 3
