"""Which objects does this text hold? Manifests and dumps as people keep them, for tools that decide or lint.

Takes text, never opens a file. Many YAML documents, JSON, lists and dumps; v1beta1 and v1beta2 are converted, a
missing namespace is `default`. Reading is lenient: unknown fields and kinds stay and are ignored. Invalid is what
cannot be understood: broken syntax, a wrong JSON type, two objects of one kind and name. Judging is lint's work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from dragoman.api import convert, remedies, yamltext
from dragoman.api.codec import TYPES, decode
from dragoman.api.core import PodSpec, Workload
from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.meta import Bare, ObjectMeta, Value
from dragoman.api.validate.field import split_path
from dragoman.errors import Invalid

DEFAULT_NAMESPACE = "default"
STRINGS_MAX = 64
"""Places of one object that must be strings and are not: as many are named."""

ObjectId: TypeAlias = tuple[str, str, str, str]
"""Group, kind, namespace, name."""


class DocumentInvalid(Invalid):
    """An object of a file cannot be understood. The parts of the place are fields, for output as JSON."""

    def __init__(
        self,
        file: str,
        document: int,
        subject: str,
        field: str,
        message: str,
        *,
        span: yamltext.TextSpan = yamltext.TextSpan(0),  # noqa: B008 - a value
        help_: str = "",
    ) -> None:
        line = span.line
        place = f"{file}, document {document}" + (f", line {line}" if line else "")
        place += f" ({subject})" if subject else ""
        super().__init__(f"{place}: {field}" if field else place, message)
        self.file = file
        self.document = document
        self.line = line
        self.span = span
        self.help = help_
        self.subject = subject
        self.field = field
        self.message = message


class Document(msgspec.Struct, frozen=True):
    """One object of a file.

    `raw` is as written. `object` is in the stored version with its namespace, `value` its struct (`codec.TYPES`);
    of kinds we do not know, and of versions that are gone, `kind` and `value` are None and `object` is `raw`.
    """

    file: str
    chunk: yamltext.Chunk
    raw: dict[str, Any]
    object: dict[str, Any]
    kind: Kind | None
    value: Value | None

    @property
    def number(self) -> int:
        """The document's number in its file, from 1."""
        return self.chunk.document

    @property
    def item(self) -> int | None:
        """The place in a list, from 0."""
        return self.chunk.item

    @property
    def kind_name(self) -> str:
        """The kind as written."""
        return str(self.raw.get("kind") or "")

    @property
    def name(self) -> str:
        """metadata.name; generateName, if there is no name."""
        metadata = _metadata(self.raw)
        return str(metadata.get("name") or metadata.get("generateName") or "")

    @property
    def namespace(self) -> str:
        """The namespace, `default` for a missing one, "" for cluster scope and unknown kinds without one."""
        return str(_metadata(self.object).get("namespace") or "")

    @property
    def subject(self) -> str:
        """`Pod default/train`."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind_name} {name}".strip()

    @property
    def identity(self) -> ObjectId | None:
        """What may be there once; None without a name: such an object is recreated each time."""
        if not _metadata(self.raw).get("name"):
            return None
        group = str(self.raw.get("apiVersion")).rpartition("/")[0]
        return group, self.kind_name, self.namespace, self.name

    @property
    def place(self) -> str:
        """`pods.yaml, document 2, items[3]`."""
        text = f"{self.file}, document {self.number}"
        return text if self.item is None else f"{text}, items[{self.item}]"

    def line(self, field: str = "") -> int:
        """The line of a field (`spec.devices.requests[0].name`) as written, or of the nearest one above it."""
        return self.span(field).line

    def span(self, field: str = "", *, named: bool = False) -> yamltext.TextSpan:
        """The place of a field's value (named: of its name), or of the nearest field above it that is written."""
        return yamltext.span_of(self.chunk, split_path(field), named=named)

    def invalid(self, field: str, message: str, help_: str = "") -> DocumentInvalid:
        """An error at a field of this document, and what to do about it."""
        span = self.span(field)
        return DocumentInvalid(self.file, self.number, self.subject, field, message, span=span, help_=help_)

    def mistyped(self, error: Invalid, *at: str) -> DocumentInvalid:
        """A wrong type that the codec found below `at`."""
        field = ".".join(filter(None, (*at, error.where)))
        written = yamltext.scalar_text(self.chunk, split_path(field))
        return self.invalid(field, error.what + _HINTS.get(error.what, ""), remedies.of_type(error.what, written))


def read(text: str, name: str) -> list[Document]:
    """The objects of one text; `name` is what errors call it. Raises Invalid (DocumentInvalid, yamltext.Broken)."""
    return read_all([(name, text)])


def read_all(
    sources: Iterable[tuple[str, str]], reported: Callable[[], None] = lambda: None, *, changes: bool = False
) -> list[Document]:
    """The objects of several (name, text), each object once. Raises Invalid, both places named for a duplicate.

    changes: a later text may have an object again, as a change of it; within one text it stays a duplicate. reported is
    called once an object is read, to show how far it is.
    """
    documents: list[Document] = []
    seen: dict[ObjectId, Document] = {}
    for name, text in sources:
        for chunk in yamltext.chunks(text, name):
            document, error = _understood(name, chunk)
            error = error or _seen_before(document, seen, changes=changes)
            if error is not None:
                raise error
            documents.append(document)
            reported()
    return documents


class Scan(msgspec.Struct, frozen=True):
    """All that could be read, and what was wrong with the rest (or with documents whose `value` is None)."""

    documents: list[Document]
    invalid: list[DocumentInvalid]
    broken: list[yamltext.Broken]


def scan(sources: Iterable[tuple[str, str]], *, changes: bool = False) -> Scan:
    """As `read_all`, for those who want every error: it goes on after one and never raises."""
    found = Scan([], [], [])
    seen: dict[ObjectId, Document] = {}
    for name, text in sources:
        for chunk in yamltext.chunks(text, name, found.broken):
            document, error = _understood(name, chunk)
            found.documents.append(document)
            found.invalid.extend(e for e in (error, _seen_before(document, seen, changes=changes)) if e is not None)
            if error is not None and document.kind is not None:
                found.invalid.extend(_other_strings(document, error))
    return found


def _seen_before(document: Document, seen: dict[ObjectId, Document], *, changes: bool) -> DocumentInvalid | None:
    key = document.identity
    if key is None or (first := seen.setdefault(key, document)) is document:
        return None
    if changes and first.file != document.file:
        seen[key] = document
        return None
    return document.invalid("metadata.name", f"is already defined in {first.place}, line {first.line()}")


def _other_strings(document: Document, first: DocumentInvalid) -> Iterator[DocumentInvalid]:
    """The other places of an object that must be strings and are not, after the first."""
    assert document.kind is not None
    struct = TYPES.get(document.kind.kind) or _UNREAD.get(document.kind.kind, Bare)
    obj, seen = copy.deepcopy(document.object), {first.field}
    for _ in range(STRINGS_MAX):
        try:
            decode(struct, obj)
            return
        except Invalid as error:
            if not error.what.startswith("must be a string") or not _replaced(obj, split_path(error.where)):
                return
            if error.where not in seen:
                seen.add(error.where)
                yield document.mistyped(error)


def _replaced(obj: Any, path: Sequence[str | int]) -> bool:
    """Puts a string where the path leads, so that what follows is read; False if it leads nowhere."""
    for step in path[:-1]:
        try:
            obj = obj[step]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        obj[path[-1]] = ""
    except (IndexError, TypeError):
        return False
    return True


def _understood(name: str, chunk: yamltext.Chunk) -> tuple[Document, DocumentInvalid | None]:
    """The document, and what is wrong with it."""
    raw = chunk.value
    document = Document(name, chunk, raw, raw, None, None)
    for field in ("kind", "apiVersion"):
        if not isinstance(raw.get(field), str) or not raw[field]:
            return document, document.invalid(field, "must be set, to say what this object is")
    kind = _known(raw)
    if kind is None:
        return document, None
    stored = convert.to_stored(kind.kind, raw["apiVersion"].rpartition("/")[2], raw)
    metadata = stored.get("metadata")
    if kind.namespaced and isinstance(metadata, dict | type(None)) and not (metadata or {}).get("namespace"):
        stored = {**stored, "metadata": {**(metadata or {}), "namespace": DEFAULT_NAMESPACE}}
    document = Document(name, chunk, raw, stored, kind, None)
    struct = TYPES.get(kind.kind)
    try:
        value = decode(struct or _UNREAD.get(kind.kind, Bare), stored)
    except Invalid as error:
        return document, document.mistyped(error)
    if struct is None:
        return document, None
    for path in (
        _TEMPLATES if isinstance(value, Workload) else ()
    ):  # which stay raw, so that nothing is lost when pods are made from them
        spec = _at(stored, *path)
        try:
            if isinstance(spec, str):
                raise Invalid("", "must be an object, got a string")
            decode(PodSpec, spec or {})
        except Invalid as error:
            return document, document.mistyped(error, *path)
    return Document(name, chunk, raw, stored, kind, value), None


_TEMPLATES = (("spec", "template", "spec"), ("spec", "jobTemplate", "spec", "template", "spec"))
"""Where workloads hold the spec of the pods that they make."""


def _at(obj: Any, *path: str) -> Any:
    """The value at the path, None where there is none."""
    for field in path:
        obj = obj.get(field) if isinstance(obj, dict) else None
    return obj


def _known(raw: dict[str, Any]) -> Kind | None:
    """The kind, if it is one of ours in a version that is served."""
    kind = BY_NAME.get(raw["kind"])
    group, _, version = raw["apiVersion"].rpartition("/")
    return kind if kind is not None and kind.group == group and version in kind.versions else None


_HINTS = {"must be a string, got true or false": " (YAML takes y, n, yes, no, on and off for these)"}


class ConfigMapData(Value, frozen=True):
    """A ConfigMap, as far as its types go wrong in practice."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class SecretData(Value, frozen=True):
    """A Secret, likewise."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    string_data: dict[str, str] = {}


_UNREAD: dict[str, type[Value]] = {"ConfigMap": ConfigMapData, "Secret": SecretData}
"""Kinds that no decision reads: of others the metadata alone is checked."""


def _metadata(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
