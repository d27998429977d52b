"""How do we talk to an API server over HTTP? The Client protocol on aiohttp.

Decides nothing about objects: it maps calls to requests, statuses to our errors, and versions that an older
server serves to the ones we think in. Watches are split into lines here, since a line may be megabytes.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

import aiohttp
import msgspec

from dragoman import __version__
from dragoman.api import convert, deepjson
from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.cluster.client import Listed, PatchOptions, WatchEvent
from dragoman.cluster.credentials import Credentials
from dragoman.cluster.kubeconfig import Access
from dragoman.cluster.proxies import proxy_of
from dragoman.cluster.reach import Reach, followed
from dragoman.errors import (
    Bug,
    Denied,
    DragomanError,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    Retry,
    Stale,
    Unauthenticated,
)
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

PAGE = 500
REQUEST_TIMEOUT_S = 60.0
WATCH_MIN_S = 300
"""Watches end after 5 to 10 minutes, as client-go's do, so that servers can be drained."""
CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_encode = msgspec.json.encode


class HttpClient:
    """One server, one identity, one pool of connections. `close()` it; see Client for the calls."""

    def __init__(self, access: Access, clock: Clock, entropy: Entropy, *, manager: str = "dragoman") -> None:
        self.access = access
        self.manager = manager
        self.reach = Reach()
        self._entropy = entropy
        self._credentials = Credentials(access, clock)
        self._proxy = proxy_of(access.server, access.proxy_url, os.environ)
        limit_s = REQUEST_TIMEOUT_S if access.request_timeout_s is None else access.request_timeout_s
        self._timeout = aiohttp.ClientTimeout(total=limit_s or None)
        self._open: aiohttp.ClientSession | None = None
        self._served: dict[str, str] = {}
        self._watched: set[str] = set()
        """Paths that were watched: by the next watch the server may have been restored from a backup."""

    # ---- requests

    async def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            tls = await self._credentials.tls()
            if self._open is None:
                # Watches hold a connection each, so the pool itself is unlimited and small calls are few at a time.
                connector = aiohttp.TCPConnector(ssl=tls, limit=0, limit_per_host=0, keepalive_timeout=60)
                self._open = aiohttp.ClientSession(
                    connector=connector,
                    headers={
                        "User-Agent": f"dragoman/{__version__}",
                        "Accept": "application/json",
                        "Accept-Encoding": "identity",
                    },
                    auto_decompress=True,
                )
        return self._open

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        session = await self._session()
        headers = await self._credentials.headers()
        if accept:
            headers["Accept"] = accept
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = _encode(body)
        access = self.access
        try:
            response = await session.request(
                method,
                access.server + path,
                params={key: value for key, value in (query or {}).items() if value},
                data=data,
                headers=[*headers.items(), *self._credentials.repeated()],
                proxy=self._proxy or None,
                server_hostname=access.tls_server_name or None,
                allow_redirects=False,
                timeout=timeout or self._timeout,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error, path) from None
        if response.status >= 400:
            if response.status == 401:
                self._credentials.expire()
            raise self._in_context(await _failure(response, f"{method} {path}"), path)
        if response.status >= 300:
            response.release()
            to = response.headers.get("Location", "another place")
            raise Retry(f"{access.server} is not a Kubernetes API server: {path} redirects to {to}; {_STANDS_BETWEEN}")
        return response

    def _unreachable(self, error: Exception, path: str) -> DragomanError:
        """Why no answer came, for people: the server, and what to look at."""
        server = self.access.server
        match error:
            case aiohttp.ClientConnectorCertificateError():
                return Denied(
                    f"{server}: its certificate is not trusted: {_certificate_reason(error.certificate_error)}; "
                    "check certificate-authority and tls-server-name of the kubeconfig"
                )
            case aiohttp.ClientConnectorSSLError():
                why = getattr(error.os_error, "reason", None) or error.os_error
                return Retry(f"{server}: no TLS connection: {why}; is the server's URL right (https, port)?")
            case aiohttp.ClientProxyConnectionError():
                return Retry(f"{server}: the proxy {self._proxy} does not answer: {_reason(error.os_error)}")
            case aiohttp.ClientHttpProxyError():
                return Denied(f"{server}: the proxy {self._proxy} refuses: {error.status} {error.message}")
            case aiohttp.ClientConnectorError():
                return Retry(f"{server} does not answer: {_reason(error.os_error)}; is it running?")
            case aiohttp.InvalidURL():
                return Invalid("kubeconfig", f"{server!r} is not the URL of a server")
            case TimeoutError():
                limit_s = self._timeout.total
                within = f" within {limit_s:g} s" if limit_s else ""
                return Retry(f"{server} did not answer GET {path}{within}; try again, or raise --request-timeout")
        return Retry(f"{server} does not answer: {error or type(error).__name__}")

    def _in_context(self, error: DragomanError, path: str) -> DragomanError:
        """Answers that are about who we are, with the server and the user."""
        server, who = self.access.server, self.access.who
        match error:
            case Unauthenticated():
                return Unauthenticated(
                    f"{server} does not accept the credentials of {who}: {error} (401); log in again, "
                    "or choose another context or kubeconfig"
                )
            case Denied() | NotServed():
                return type(error)(f"{server}: {error} ({who})")
            case Retry():
                return Retry(f"{server}: {error}", after_s=error.after_s)
        return error

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        response = await self._send(method, path, **more)
        try:
            return deepjson.loads(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Retry(f"{self.access.server}: the answer broke off: {error or type(error).__name__}") from None
        except msgspec.DecodeError:
            what = "an HTML page" if "html" in response.headers.get("Content-Type", "") else "something"
            raise Retry(
                f"{self.access.server} is not a Kubernetes API server: {method} {path} answered {what} "
                f"that is not JSON; {_STANDS_BETWEEN}"
            ) from None
        finally:
            response.release()

    # ---- versions

    async def version_of(self, kind: Kind) -> str:
        """The version to use for a kind: the first of ours that the server serves. Raises NotFound."""
        if len(kind.versions) == 1:
            return kind.versions[0]
        known = self._served.get(kind.kind)
        if known is not None:
            return known
        group = await self._call("GET", f"/apis/{kind.group}")
        offered = {entry["version"] for entry in group.get("versions", ())}
        for version in kind.versions:
            if version not in offered:
                continue
            resources = await self._call("GET", f"/apis/{kind.group}/{version}")
            if any(entry["name"] == kind.plural for entry in resources.get("resources", ())):
                self._served[kind.kind] = version
                return version
        raise NotServed(
            f"{self.access.server} serves no {kind.plural}.{kind.group} in {', '.join(kind.versions)} "
            f"({self.access.who})"
        )

    async def _at(self, kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> tuple[str, str]:
        version = await self.version_of(kind)
        return kind.path(namespace, name, subresource, version=version), version

    async def server_version(self) -> Object:
        """GET /version."""
        answer: Object = await self._call("GET", "/version")
        return answer

    async def table(
        self, kind: Kind, namespace: str = "", name: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> Object:
        """The server's own table (meta.k8s.io/v1 Table) of one object, or of all that match."""
        path, _ = await self._at(kind, namespace, name)
        query = {"fieldSelector": field_selector, "labelSelector": label_selector}
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        answer: Object = await self._call("GET", path, query=query, accept=accept)
        return answer

    async def logs(self, name: str, namespace: str, container: str = "") -> str:
        """What a container of a pod wrote so far."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
        return await self.text(path, {"container": container})

    async def text(self, path: str, query: dict[str, str] | None = None) -> str:
        """GET a path that answers text, such as /metrics."""
        response = await self._send("GET", path, query=query or {}, accept="text/plain, */*")
        try:
            return (await response.read()).decode(errors="replace")
        finally:
            response.release()

    # ---- the protocol

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One object."""
        path, version = await self._at(kind, namespace, name)
        return _ours(kind, version, await self._call("GET", path))

    async def list(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> Listed:
        """All objects, in pages; the version is that of the first page's consistent read."""
        path, version = await self._at(kind, namespace)
        query = {"limit": str(PAGE), "fieldSelector": field_selector, "labelSelector": label_selector}
        items: list[Object] = []
        while True:
            page = await self._call("GET", path, query=query)
            meta = page.get("metadata") or {}
            for item in page.get("items") or ():
                item.setdefault("apiVersion", kind.version_text(version))
                item.setdefault("kind", kind.kind)
                items.append(_ours(kind, version, item))
            if not meta.get("continue"):
                return Listed(items, meta.get("resourceVersion", ""))
            query["continue"] = meta["continue"]

    async def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Changes after that version, until the server ends the watch."""
        path, version = await self._at(kind, namespace)
        if path in self._watched:
            await self._check_not_older(path, resource_version)
        self._watched.add(path)
        seconds = int(self._entropy.jitter(WATCH_MIN_S, 1.0))
        response = await self._send(
            "GET",
            path,
            query={
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "timeoutSeconds": str(seconds),
                "fieldSelector": field_selector,
                "labelSelector": label_selector,
            },
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=seconds + 15),
        )
        self.reach.works(followed(kind.plural, namespace, field_selector, label_selector))
        try:
            async for line in _lines(response):
                event = _event(line)
                if event.type == "ERROR":
                    raise _of_status(event.object, f"watch of {kind.plural}")
                if event.type != "BOOKMARK":
                    event.object = _ours(kind, version, event.object)
                yield event
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Retry(f"watch of {kind.plural} broke off: {error or type(error).__name__}") from None
        except msgspec.DecodeError as error:
            raise Retry(f"watch of {kind.plural} sent something that is not an event: {error}") from None
        finally:
            response.close()

    async def _check_not_older(self, path: str, resource_version: str) -> None:
        """A server put back to an older state serves a watch from a later version, and keeps silent up to there."""
        page = await self._call("GET", path, query={"limit": "1"})
        current = str((page.get("metadata") or {}).get("resourceVersion") or "")
        if current.isdecimal() and resource_version.isdecimal() and int(current) < int(resource_version):
            raise Stale(f"{self.access.server} went back from version {resource_version} to {current}")

    async def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, subresource: str = "", name: str = ""
    ) -> Object:
        """POST, also to a subresource of object `name`."""
        namespace = namespace or (obj.get("metadata") or {}).get("namespace", "")
        path, version = await self._at(kind, namespace, name if subresource else "", subresource)
        body = obj if subresource else convert.from_stored(kind.kind, version, obj)
        answer: Object = await self._call("POST", path, query={"fieldManager": self.manager}, body=body)
        return answer if subresource else _ours(kind, version, answer)

    async def replace(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """PUT."""
        meta = obj["metadata"]
        path, version = await self._at(kind, meta.get("namespace", ""), meta["name"], subresource)
        body = convert.from_stored(kind.kind, version, obj)
        return _ours(kind, version, await self._call("PUT", path, query={"fieldManager": self.manager}, body=body))

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        strict: bool = False,
        **options: Unpack[PatchOptions],
    ) -> Object:
        """PATCH; an apply patch names its apiVersion and kind. strict: unknown fields are refused, not dropped."""
        type = options.get("type", "merge")
        path, version = await self._at(kind, namespace, name, options.get("subresource", ""))
        if isinstance(patch, dict):
            patch = convert.from_stored(kind.kind, version, patch)
        forced = options.get("force", False) and type == "apply"
        query = {"fieldManager": options.get("manager") or self.manager, "force": "true" if forced else ""}
        if strict:
            query["fieldValidation"] = "Strict"
        answer = await self._call("PATCH", path, query=query, body=patch, content_type=CONTENT_TYPES[type])
        return _ours(kind, version, answer)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> None:
        """DELETE with DeleteOptions."""
        path, _ = await self._at(kind, namespace, name)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        guard = {"uid": uid, "resourceVersion": resource_version}
        if guard := {key: value for key, value in guard.items() if value}:
            options["preconditions"] = guard
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if propagation:
            options["propagationPolicy"] = propagation
        await self._call("DELETE", path, body=options)

    async def delete_collection(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> None:
        """DELETE of all that match."""
        path, _ = await self._at(kind, namespace)
        await self._call("DELETE", path, query={"fieldSelector": field_selector, "labelSelector": label_selector})

    async def close(self) -> None:
        """Close the pool."""
        if self._open is not None:
            await self._open.close()
            self._open = None


def _ours(kind: Kind, version: str, obj: Object) -> Object:
    return obj if version == kind.versions[0] else convert.to_stored(kind.kind, version, obj)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest: list[bytes] = []
    async for chunk in response.content.iter_any():
        first, *more = chunk.split(b"\n")
        rest.append(first)
        for resource_slice in more:
            line = b"".join(rest)
            rest = [resource_slice]
            if line.strip():
                yield line
    if (line := b"".join(rest)).strip():
        yield line


def _event(line: bytes) -> WatchEvent:
    try:
        return msgspec.json.decode(line, type=WatchEvent)
    except RecursionError:
        return msgspec.convert(deepjson.loads(line), WatchEvent)


_STANDS_BETWEEN = "check the server's URL, and proxy-url or HTTPS_PROXY: a proxy or login page may stand between"


def _certificate_reason(error: Exception) -> str:
    return str(getattr(error, "verify_message", "") or error)


def _reason(error: OSError) -> str:
    """Why there is no connection, in the system's words, which asyncio wraps in its own."""
    if isinstance(error, socket.gaierror):
        return "its host name is not known"
    return os.strerror(error.errno).lower() if error.errno else str(error)


async def _failure(response: aiohttp.ClientResponse, request: str) -> DragomanError:
    try:
        raw = await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError):
        raw = b""
    finally:
        response.release()
    try:
        status = deepjson.loads(raw)
    except msgspec.DecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = " ".join(raw.decode(errors="replace").split())[:200]
        if "html" in response.headers.get("Content-Type", "") or text.startswith("<"):
            kind = Retry if response.status >= 500 else Denied
            title = " ".join(re.sub(r"<[^>]*>", " ", text).split())[:80]
            return kind(
                f"an HTML page answers {request} ({response.status} {response.reason}: {title}); {_STANDS_BETWEEN}"
            )
        if response.status == 404:
            return NotServed(f"{request} is not served: {text or response.reason}")
        status = {"code": response.status, "message": f"{request}: {text or response.reason}"}
    status["code"] = response.status
    after = response.headers.get("Retry-After", "")
    return _of_status(status, request, after_s=float(after) if after.isdecimal() else None)


def _of_status(status: Object, request: str, *, after_s: float | None = None) -> DragomanError:
    """A Status as the error that says what a caller can do."""
    code = status.get("code") or 500
    message = str(status.get("message") or status.get("reason") or f"{request} failed with {code}")
    causes: list[Object] = (status.get("details") or {}).get("causes") or []
    if code in (409, 410) or any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes):
        return Stale(message)  # the second: the server knows less than we do, maybe for good (a restored backup)
    if code == 404:
        return NotFound(message)
    if code == 401:
        return Unauthenticated(message)
    if code == 403:
        return Forbidden(message)
    if code == 407:
        return Denied(message)
    if code == 429 or code >= 500:
        details = status.get("details") or {}
        wait_s = after_s or details.get("retryAfterSeconds")
        if code == 429:
            again = f" in {wait_s:g} s" if wait_s else " later"
            message = f"too many requests (429): {message}; try again{again}"
        return Retry(message, after_s=wait_s)
    if code in (400, 405, 406, 413, 415, 422):
        if len(causes) == 1 and causes[0].get("field"):
            return Invalid(causes[0]["field"], causes[0].get("message") or message)
        return Invalid("", message)
    return Bug(f"{request}: unexpected status {code}: {message}")
