"""What can lint say? A Finding is one fault at one place, with the reason and the way out; CODES is the closed list.

Never looks for faults itself: that is the families' work.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from dragoman.api.files import Document

ERROR = "error"
WARNING = "warning"
NOTE = "note"

Steps: TypeAlias = tuple[str | int, ...]


class SetValue(msgspec.Struct, frozen=True):
    """Sets the value at a path."""

    path: Steps
    value: Any


class Remove(msgspec.Struct, frozen=True):
    """Removes the entry at a path."""

    path: Steps


class Rename(msgspec.Struct, frozen=True):
    """Gives the entry at a path another key."""

    path: Steps
    key: str


class Nest(msgspec.Struct, frozen=True):
    """Moves fields of the mapping at a path into a mapping under `into`, which takes the first one's place."""

    path: Steps
    fields: tuple[str, ...]
    into: str


class Lift(msgspec.Struct, frozen=True):
    """Puts the entries of the mapping under `child` in its place."""

    path: Steps
    child: str


class ReplaceText(msgspec.Struct, frozen=True):
    """Replaces a part of the text at a path, wherever it stands in it."""

    path: Steps
    old: str
    new: str


Edit: TypeAlias = SetValue | Remove | Rename | Nest | Lift | ReplaceText


class Finding(msgspec.Struct, frozen=True):
    """One fault. `document` is None where the text could not be read; file, number and line say the place then.

    field is the path as written. message says what is wrong and why it matters, fix what to do about it; edits do it.
    """

    code: str
    severity: str
    file: str
    number: int
    line: int
    field: str
    message: str
    fix: str = ""
    subject: str = ""
    item: int | None = None
    edits: tuple[Edit, ...] = ()
    document: Document | None = None


class Code(msgspec.Struct, frozen=True):
    """What a code means, and how bad it is."""

    severity: str
    meaning: str


CODES: dict[str, Code] = {
    "BrokenSyntax": Code(ERROR, "The text is no YAML or JSON."),
    "WrongType": Code(ERROR, "A value has a JSON type that the field does not take."),
    "YamlBoolean": Code(ERROR, "YAML takes an unquoted y, n, yes, no, on or off for true or false."),
    "DuplicateKey": Code(ERROR, "A key is there twice in one mapping; only the last one counts."),
    "DuplicateObject": Code(ERROR, "Two objects have one kind, namespace and name."),
    "RemovedKind": Code(ERROR, "The kind was removed from Kubernetes."),
    "VersionNotServed": Code(ERROR, "The target version of Kubernetes does not serve this API version."),
    "OldVersion": Code(WARNING, "The API version is deprecated, and off unless the server turns it on."),
    "FlatRequest": Code(ERROR, "Fields of a request stand where only v1beta1 has them; newer versions want `exactly`."),
    "NestedRequest": Code(ERROR, "A v1beta1 request has `exactly`, which that version does not know."),
    "WrappedDevice": Code(ERROR, "Fields of a device stand under `basic`, which only v1beta1 has."),
    "BareDevice": Code(ERROR, "Fields of a v1beta1 device stand outside `basic`, where that version drops them."),
    "InlineClaim": Code(ERROR, "A pod's claim entry has `source`, which went with Kubernetes 1.31."),
    "UnknownField": Code(ERROR, "The API has no such field: strict servers refuse it, others drop it."),
    "GatedField": Code(WARNING, "The server drops the field unless a feature gate is on."),
    "InvalidField": Code(ERROR, "The API server refuses the value."),
    "NeverComplete": Code(ERROR, "The pool of a slice can never be complete, so its devices are never used."),
    "RequestsWithoutLimits": Code(ERROR, "An extended resource stands only in requests; it must be in limits."),
    "TaintsEverything": Code(WARNING, "An empty device selector taints all devices of all drivers."),
    "TaintsNothing": Code(WARNING, "A taint rule without device selector taints nothing."),
    "UnknownClass": Code(WARNING, "A request names a DeviceClass that is not there."),
    "UnknownClaim": Code(WARNING, "A pod names a claim or a template that is not there."),
    "ForeignPool": Code(WARNING, "A slice of a driver that names pools after nodes has a pool of another name."),
    "UnusedClaim": Code(NOTE, "No container names the claim: its devices are allocated and nobody sees them."),
    "UnknownRequest": Code(ERROR, "A container names a request that its claim does not have."),
    "AttributeIsCapacity": Code(ERROR, "A selector reads as attribute what drivers publish as capacity."),
    "CapacityIsAttribute": Code(ERROR, "A selector reads as capacity what drivers publish as attribute."),
    "UnknownAttribute": Code(ERROR, "A selector reads what no driver publishes."),
    "UnknownDomain": Code(WARNING, "A selector reads the domain of a driver that publishes nothing here."),
    "WrongConfig": Code(ERROR, "The driver does not take this opaque configuration."),
    "NeedsDriverGate": Code(WARNING, "The driver takes the configuration only with a feature gate of its own."),
    "LargerThanAnyNode": Code(WARNING, "A claim asks for more devices than any one node has."),
    "RolloutStuck": Code(WARNING, "A rollout needs more devices at once than there are, so it never finishes."),
    "AdvertisedTwice": Code(WARNING, "A device plugin and a DRA driver offer the same devices of a node."),
    "MoreThanExist": Code(WARNING, "The pods of a workload together ask for more devices than exist."),
    "UnguardedAttribute": Code(WARNING, "A selector reads what some devices lack, and fails on them."),
    "SelectorFails": Code(WARNING, "A selector fails on some devices when it is evaluated."),
    "NeverTrue": Code(WARNING, "A selector is false for every device."),
    "JustMissed": Code(WARNING, "A threshold lies just above what devices of that size really have."),
    "WrongPartitionProfile": Code(ERROR, "A selector asks for a partition profile that the card cannot have."),
    "ConstraintUnmeetable": Code(WARNING, "No node has enough devices that meet the constraint together."),
    "ConstraintNotShared": Code(WARNING, "Not every driver whose devices must match publishes the attribute."),
    "TooManyConsumers": Code(ERROR, "More pods share a claim than may reserve it."),
}
"""Every code there is."""


LINES_MAX = 256 * 1024
"""Characters of a document in which the line of a field is looked for; in larger ones the document's own is told."""


def found(
    document: Document, code: str, field: str, message: str, fix: str = "", *edits: Edit, line: int = 0
) -> Finding:
    """A finding at a field (as written) of a document; the line is looked up unless given."""
    return Finding(
        code=code,
        severity=CODES[code].severity,
        file=document.file,
        number=document.number,
        item=document.item,
        line=line or (document.line(field) if len(document.chunk.text) <= LINES_MAX else document.chunk.line),
        subject=document.subject,
        field=field,
        message=message,
        fix=fix,
        edits=edits,
        document=document,
    )


def as_json(finding: Finding) -> dict[str, Any]:
    """The finding as JSON: code, severity, place, message, fix."""
    shown: dict[str, Any] = {
        "code": finding.code,
        "severity": finding.severity,
        "file": finding.file,
        "document": finding.number,
        "line": finding.line,
        "object": finding.subject,
        "field": finding.field,
        "message": finding.message,
        "fix": finding.fix,
        "fixable": bool(finding.edits),
    }
    if finding.item is not None:
        shown["item"] = finding.item
    return shown
