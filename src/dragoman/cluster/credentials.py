"""What proves who we are, right now? Bearer tokens that change, exec plugins, client certificates, TLS.

Never stores a secret outside memory, except for the moment in which the TLS library reads a key.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dragoman.api.meta import parse_time
from dragoman.cluster.kubeconfig import Access, ExecPlugin
from dragoman.errors import Denied, Invalid
from dragoman.runtime.clock import Clock

TOKEN_FILE_AGE_S = 60.0
"""Projected tokens are renewed on disk; client-go reads them again after a minute too."""
EARLY_S = 10.0


class Credentials:
    """The current token and TLS context of an access."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self.access = access
        self._clock = clock
        self._token = access.token
        self._fresh_until = 0.0
        self._cert = access.cert_pem
        self._key = access.key_pem
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Authorization and impersonation. Raises Denied when a plugin fails."""
        access = self.access
        headers: dict[str, str] = {}
        if access.token_file or access.exec:
            async with self._lock:
                if self._clock.now() >= self._fresh_until:
                    await self._renew()
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        elif access.username:
            pair = f"{access.username}:{access.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if access.impersonate:
            headers["Impersonate-User"] = access.impersonate
            if access.impersonate_uid:
                headers["Impersonate-Uid"] = access.impersonate_uid
        return headers

    def repeated(self) -> list[tuple[str, str]]:
        """Headers of impersonation that may occur several times: one for each group and each extra value."""
        extra = [(quote(key, safe=""), value) for key, values in self.access.impersonate_extra for value in values]
        groups = [("Impersonate-Group", group) for group in self.access.impersonate_groups]
        return [*groups, *((f"Impersonate-Extra-{key}", value) for key, value in extra)]

    def expire(self) -> None:
        """The server said 401: ask again next time."""
        self._fresh_until = 0.0

    async def _renew(self) -> None:
        if self.access.token_file:
            try:
                self._token = _read_token(self.access.token_file)
            except OSError as error:
                raise Denied(f"cannot read the token {self.access.token_file}: {error.strerror}") from None
            self._fresh_until = self._clock.now() + TOKEN_FILE_AGE_S
            return
        assert self.access.exec is not None
        status = await _ask(self.access.exec, self.access)
        self._token = status.get("token") or ""
        if status.get("clientCertificateData"):
            self._cert = status["clientCertificateData"].encode()
            self._key = (status.get("clientKeyData") or "").encode()
        expires = status.get("expirationTimestamp")
        self._fresh_until = parse_time(expires).timestamp() - EARLY_S if expires else float("inf")

    async def tls(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`."""
        access = self.access
        if not access.server.startswith("https"):
            return False
        if access.exec and not self._token and not self._cert:
            await self.headers()
        context = ssl.create_default_context(cadata=access.ca_pem.decode() if access.ca_pem else None)
        if access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._cert:
            _load_pair(context, self._cert, self._key or b"")
        return context


def _read_token(file: str) -> str:
    # A few hundred bytes of a local file, once a minute: not worth a thread.
    return Path(file).read_text().strip()


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        cert_file, key_file = Path(folder, "cert"), Path(folder, "key")
        cert_file.write_bytes(cert)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        try:
            context.load_cert_chain(cert_file, key_file if key else None)
        except ssl.SSLError as error:
            raise Invalid("client-certificate", f"certificate and key do not load: {error.reason}") from None


async def _ask(plugin: ExecPlugin, access: Access) -> dict[str, Any]:
    """Run an exec plugin; the status of the ExecCredential that it prints."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster:
        cluster: dict[str, Any] = {"server": access.server, "insecure-skip-tls-verify": access.insecure}
        if access.ca_pem:
            cluster["certificate-authority-data"] = msgspec.to_builtins(access.ca_pem)
        spec["cluster"] = cluster
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environ = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode()}
    hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
    try:
        child = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise Denied(f"credential plugin {plugin.command} does not start: {error.strerror}{hint}") from None
    out, err = await child.communicate()
    if child.returncode:
        said = " ".join(err.decode(errors="replace").split())[:300]
        raise Denied(f"credential plugin {plugin.command} failed with {child.returncode}: {said}{hint}")
    try:
        status: dict[str, Any] = msgspec.json.decode(out)["status"]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise Denied(f"credential plugin {plugin.command} printed no ExecCredential with a status") from None
    return status
