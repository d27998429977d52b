"""In which form does a client want the answer, and what is in its body? Accept headers and request bodies.

Answers are JSON (or YAML where that is all a client takes), possibly as a Table, as metadata only, or as aggregated
discovery. Protobuf is read but never written.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import yaml

from dragoman.api import yamltext
from dragoman.apiserver import protobuf
from dragoman.apiserver.limits import check_depth
from dragoman.apiserver.status import StatusError, bad_request
from dragoman.errors import Invalid

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_FORMS = {
    ("Table", "meta.k8s.io", "v1"),
    ("PartialObjectMetadata", "meta.k8s.io", "v1"),
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"),
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"),
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1"),
}


class MediaForm(msgspec.Struct, frozen=True):
    """media is application/json or application/yaml; `kind` is "" or what the answer should be turned into."""

    media: str = JSON
    kind: str = ""
    version: str = ""
    content_type: bytes = b"application/json"


PLAIN = MediaForm()


@lru_cache(512)
def form_of(accept: str, tables: bool = True) -> MediaForm:
    """The first form of an Accept header that this server can answer with. Raises 406.

    tables: whether there is a Table of the answer, and metadata of its own; reviews and Scales have neither.
    """
    for part in accept.split(",") if accept else ["*/*"]:
        words = [word.strip() for word in part.split(";")]
        media = words[0].lower()
        if media in ("*/*", "application/*"):
            return PLAIN
        if media not in (JSON, YAML):
            continue
        params = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        kind = params.get("as", "")
        if not kind:
            return PLAIN if media == JSON else MediaForm(YAML, content_type=b"application/yaml")
        group, version = params.get("g", ""), params.get("v", "")
        if (kind, group, version) in _FORMS and tables:
            content_type = f"{JSON};g={group};v={version};as={kind}".encode()
            return MediaForm(JSON, kind, version, content_type)
    raise StatusError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml",
    )


def to_yaml(body: bytes) -> bytes:
    """JSON bytes as YAML."""
    text: str = yaml.dump(msgspec.json.decode(body), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text.encode()


_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def decode(body: bytes, content_type: str) -> Any:
    """A request body as plain JSON values. Raises 400 for what does not parse, 415 for an unknown media type."""
    media = content_type.partition(";")[0].strip().lower()
    if media == PROTOBUF or body[:4] == b"k8s\0":
        try:
            return protobuf.decode(body)
        except Invalid as wrong:
            raise bad_request(f"the protobuf body cannot be read: {wrong}") from wrong
    try:
        value = msgspec.json.decode(body)
        check_depth(body)
        return value
    except (msgspec.DecodeError, ValueError) as wrong:
        if media not in (YAML, "application/apply-patch+yaml"):
            raise bad_request(f"the object provided is unrecognized (must be of type JSON): {wrong}") from wrong
    try:
        return yamltext.parse_exact(body.decode(), "")
    except UnicodeDecodeError as wrong:
        raise bad_request(f"error converting YAML to JSON: yaml: {wrong}") from wrong
    except yamltext.Broken as wrong:
        raise bad_request(f"error converting YAML to JSON: {wrong.what}") from wrong


def decode_object(body: bytes, content_type: str) -> dict[str, Any]:
    """A request body that must be an object."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in ("", JSON, YAML, PROTOBUF, "text/yaml", "application/x-www-form-urlencoded"):
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON}, {YAML}, {PROTOBUF}",
        )
    obj = decode(body, content_type)
    if not isinstance(obj, dict):
        raise bad_request("the body must be an object")
    return obj
