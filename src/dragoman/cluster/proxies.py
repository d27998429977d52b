"""Through which proxy is a server reached? As Go's clients decide it, kubectl among them.

A cluster's proxy-url wins; else HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY names the host; never for loopback.
https://pkg.go.dev/golang.org/x/net/http/httpproxy
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from dragoman.errors import Invalid


def proxy_of(server: str, proxy_url: str, environ: Mapping[str, str]) -> str:
    """The proxy's URL, "" for none. Raises Invalid for one that is not spoken to here."""
    where = "proxy-url"
    if not proxy_url:
        parts = urlsplit(server)
        where = f"{parts.scheme.upper()}_PROXY"
        proxy_url = environ.get(where) or environ.get(where.lower()) or ""
        excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
        if not proxy_url or _is_direct(parts.hostname or "", parts.port or 443, excluded):
            return ""
    if "://" not in proxy_url:
        proxy_url = f"http://{proxy_url}"
    scheme = urlsplit(proxy_url).scheme
    if scheme not in ("http", "https"):
        raise Invalid(where, f"{scheme} proxies are not supported; name an http:// or https:// one")
    return proxy_url


def _is_direct(host: str, port: int, excluded: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, port, address) for entry in excluded.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and _address(entry) is None:
        if int(number) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if address is not None:
        return _address(entry) == address
    if entry.startswith("*."):
        entry = entry[1:]
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
