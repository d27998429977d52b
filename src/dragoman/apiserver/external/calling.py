"""How is a webhook reached? HTTPS to a URL, or to a Service by its endpoints; answers in time or not at all.

A Service is looked up in its EndpointSlices, then its Endpoints, as a real API server does. Where nothing runs behind
it, the annotation `dragoman.dev/endpoint: HOST:PORT` on the Service names a process of this machine.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.external.review import WebhookCallFailed
from dragoman.apiserver.selectors import Requirement
from dragoman.apiserver.status import not_found
from dragoman.apiserver.store import Selection, Store

if TYPE_CHECKING:
    from dragoman.apiserver.external.connections import Connections

SERVICE, SLICE, ENDPOINTS = (BY_NAME[name] for name in ("Service", "EndpointSlice", "Endpoints"))
ENDPOINT: Final = "dragoman.dev/endpoint"
TIMEOUT_S: Final = 10
CONTEXTS_MAX: Final = 256


class Caller:
    """Calls webhooks for one server. `close` it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connections: Connections | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def call(self, config: Object, body: Object, timeout_s: float) -> Any:
        """The decoded answer of a webhook's clientConfig to a body. Raises CallFailed."""
        url, host, port = self._place(config)
        shown = f"{url}{'&' if '?' in url else '?'}timeout={timeout_s:g}s"
        context = self._context(config.get("caBundle") or "")
        if self._connections is None:
            # A server without webhooks, as most are, does not pay for the HTTP client.
            from dragoman.apiserver.external.connections import Connections

            self._connections = Connections()
        return await self._connections.post(shown, (host, port), body, context, timeout_s)

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            if len(self._contexts) >= CONTEXTS_MAX:
                self._contexts.clear()
            try:
                pem = base64.b64decode(bundle).decode() if bundle else None
                context = ssl.create_default_context(cadata=pem)
            except (binascii.Error, ValueError, ssl.SSLError) as error:
                raise WebhookCallFailed(f"unable to load root certificates: {error}") from error
            self._contexts[bundle] = context
        return context

    def _place(self, config: Object) -> tuple[str, str, int]:
        """The URL to show, and the host and port that are connected to."""
        service = config.get("service")
        if not service:
            url = str(config.get("url") or "")
            split = urlsplit(url)
            if not split.hostname:
                raise WebhookCallFailed("webhook configuration must have either service or URL")
            return url, split.hostname, split.port or 443
        name, namespace = service.get("name", ""), service.get("namespace", "")
        port = service.get("port") or 443
        host, number = self.resolve(namespace, name, port)
        path = str(service.get("path") or "/")
        path = path if path.startswith("/") else f"/{path}"
        return f"https://{name}.{namespace}.svc:{port}{path}", host, number

    def resolve(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Where a port of a Service is reached. Raises CallFailed."""
        record = self._store.get(SERVICE, namespace, name)
        if record is None:
            raise WebhookCallFailed(not_found(SERVICE, name).message.replace("services", "service"))
        service = record.decode()
        override = (service["metadata"].get("annotations") or {}).get(ENDPOINT)
        if override:
            host, _, number = override.rpartition(":")
            if not number.isdecimal():
                raise WebhookCallFailed(
                    f"annotation {ENDPOINT} of service {namespace}/{name} must be HOST:PORT, got {override!r}"
                )
            return host.strip("[]") or "127.0.0.1", int(number)
        spec: Object = service.get("spec") or {}
        if spec.get("type") == "ExternalName":
            raise WebhookCallFailed('unsupported service type "ExternalName"')
        wanted = next((entry for entry in spec.get("ports") or () if entry.get("port") == port), None)
        if wanted is None:
            raise WebhookCallFailed(f'no service port {port} found for service "{name}"')
        found = self._from_slices(namespace, name, wanted.get("name", "")) or self._from_endpoints(
            namespace, name, wanted.get("name", "")
        )
        if found is None:
            raise WebhookCallFailed(f'no endpoints available for service "{name}"')
        return found

    def _from_slices(self, namespace: str, name: str, port: str) -> tuple[str, int] | None:
        label = (Requirement("kubernetes.io/service-name", "in", (name,)),)
        for record in self._store.select(SLICE, Selection(namespace, label)):
            body = record.decode()
            number = _port(body.get("ports"), port)
            for endpoint in body.get("endpoints") or ():
                ready = (endpoint.get("conditions") or {}).get("ready")
                if number and ready is not False and endpoint.get("addresses"):
                    return endpoint["addresses"][0], number
        return None

    def _from_endpoints(self, namespace: str, name: str, port: str) -> tuple[str, int] | None:
        record = self._store.get(ENDPOINTS, namespace, name)
        for subset in (record.decode().get("subsets") or ()) if record else ():
            number = _port(subset.get("ports"), port)
            for address in subset.get("addresses") or ():
                if number and address.get("ip"):
                    return address["ip"], number
        return None

    async def close(self) -> None:
        """End all connections."""
        if self._connections is not None:
            await self._connections.close()


def _port(ports: Any, name: str) -> int:
    return next(
        (int(entry["port"]) for entry in ports or () if (entry.get("name") or "") == name and entry.get("port")), 0
    )
