"""What are the parts of a URL? Absolute URLs and absolute paths, read as Go's net/url reads them."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import quote, unquote_plus

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import free, member
from dragoman.cel.values import STRICT_EQUALITY, TYPE_OF, Map

URL_TYPE: Final = t.struct("kubernetes.URL")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"(:[0-9]*)?")
_HOST = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])*")
_PATH_SAFE = "/!$&'()*+,;=:@-._~%"
_ESCAPED_PATH = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/\[\]]|%[0-9A-Fa-f]{2})*")


class URL:
    """scheme, host (with port), path (escaped as written) and query of a URL."""

    __slots__ = ("host", "path", "query", "scheme", "text")

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, URL) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


TYPE_OF[URL] = URL_TYPE
STRICT_EQUALITY.add(URL)


def parse_url(text: str) -> URL:
    """An absolute URL or an absolute path. Raises EvalError."""
    failed = f"URL parse error during conversion from string: parse {json.dumps(text, ensure_ascii=False)}"
    if not text:
        raise EvalError(f"{failed}: empty url")
    if any(ord(sign) < 0x20 or sign == "\x7f" for sign in text):
        raise EvalError(f"{failed}: invalid control character in URL")
    found = _SCHEME.match(text)
    scheme = found.group(1).lower() if found else ""
    rest = text[found.end() :] if found else text
    if not found and text[0] == ":":
        raise EvalError(f"{failed}: missing protocol scheme")
    whole, _, _fragment = rest.partition("#")
    body, _, query = whole.partition("?")
    if not body.startswith("/"):
        if scheme:
            return URL(text, scheme, "", "", query)
        raise EvalError(f"{failed}: invalid URI for request")
    host = ""
    if scheme and body.startswith("//"):
        authority, slash, path = body[2:].partition("/")
        body = slash + path
        host = _host(authority, failed)
    if _BAD_ESCAPE.search(body):
        raise EvalError(f"{failed}: invalid URL escape")
    return URL(text, scheme, host, body, query)


def _host(authority: str, failed: str) -> str:
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise EvalError(f"{failed}: missing ']' in host")
        port = host[end + 1 :]
    else:
        at = host.rfind(":")
        port = host[at:] if at >= 0 else ""
    if not _PORT.fullmatch(port):
        raise EvalError(f"{failed}: invalid port {port!r} after host")
    if not _HOST.fullmatch(host):
        raise EvalError(f"{failed}: invalid character in host name")
    return host


def is_url(text: str) -> bool:
    """Whether parse_url takes it."""
    try:
        parse_url(text)
    except EvalError:
        return False
    return True


def _hostname(url: URL) -> str:
    host = url.host
    if host.startswith("["):
        return host[1 : host.rfind("]")]
    return host.partition(":")[0]


def _port(url: URL) -> str:
    tail = url.host[url.host.rfind("]") + 1 :] if url.host.startswith("[") else url.host
    return tail.rpartition(":")[2] if ":" in tail else ""


def _escaped_path(url: URL) -> str:
    return url.path if _ESCAPED_PATH.fullmatch(url.path) else quote(url.path, safe=_PATH_SAFE)


def _query(url: URL) -> Map:
    found: dict[str, tuple[str, ...]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part or _BAD_ESCAPE.search(part):
            continue
        key, _, value = part.partition("=")
        name = unquote_plus(key)
        found[name] = (*found.get(name, ()), unquote_plus(value))
    return dict(found)


OVERLOADS: Final = [
    free("url", "string_to_url", (t.STRING,), URL_TYPE, parse_url),
    member("getScheme", "url_get_scheme", (URL_TYPE,), t.STRING, lambda url: url.scheme),
    member("getHost", "url_get_host", (URL_TYPE,), t.STRING, lambda url: url.host),
    member("getHostname", "url_get_hostname", (URL_TYPE,), t.STRING, _hostname),
    member("getPort", "url_get_port", (URL_TYPE,), t.STRING, _port),
    member("getEscapedPath", "url_get_escaped_path", (URL_TYPE,), t.STRING, _escaped_path),
    member("getQuery", "url_get_query", (URL_TYPE,), t.map_of(t.STRING, t.list_of(t.STRING)), _query),
    free("isURL", "is_url_string", (t.STRING,), t.BOOL, is_url),
]
