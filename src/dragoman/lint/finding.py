"""What can lint say? A Finding is one fault at one place, with the reason and the way out; CODES is the closed list.

Never looks for faults itself: that is the families' work.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from dragoman.api.files import Document
from dragoman.api.yamltext import TextSpan

ERROR = "error"
WARNING = "warning"
NOTE = "note"

ItemPath: TypeAlias = tuple[str | int, ...]


class SetValue(msgspec.Struct, frozen=True):
    """Sets the value at a path."""

    path: ItemPath
    value: Any


class Remove(msgspec.Struct, frozen=True):
    """Removes the entry at a path."""

    path: ItemPath


class Rename(msgspec.Struct, frozen=True):
    """Gives the entry at a path another key."""

    path: ItemPath
    key: str


class Nest(msgspec.Struct, frozen=True):
    """Moves fields of the mapping at a path into a mapping under `into`, which takes the first one's place."""

    path: ItemPath
    fields: tuple[str, ...]
    into: str


class Lift(msgspec.Struct, frozen=True):
    """Puts the entries of the mapping under `child` in its place."""

    path: ItemPath
    child: str


class ReplaceText(msgspec.Struct, frozen=True):
    """Replaces a part of the text at a path, wherever it stands in it."""

    path: ItemPath
    old: str
    new: str


Edit: TypeAlias = SetValue | Remove | Rename | Nest | Lift | ReplaceText


class Finding(msgspec.Struct, frozen=True):
    """One fault. `document` is None where the text could not be read; file, number and line say the place then.

    field is the path as written. message says what is wrong and why it matters, fix what to do about it; edits do it.
    start, end: what of the line, 0, 0 for all of it.
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
    start: int = 0
    end: int = 0


class FindingCode(msgspec.Struct, frozen=True):
    """What a code means, and how bad it is."""

    severity: str
    meaning: str


CODES: dict[str, FindingCode] = {
    "BrokenSyntax": FindingCode(ERROR, "The text is not YAML or JSON."),
    "WrongType": FindingCode(ERROR, "A value has a JSON type that the field does not take."),
    "YamlBoolean": FindingCode(ERROR, "YAML takes an unquoted y, n, yes, no, on or off for true or false."),
    "DuplicateKey": FindingCode(ERROR, "A key is defined twice in one mapping; only the last one counts."),
    "DuplicateObject": FindingCode(ERROR, "Two objects of one file have one kind, namespace and name."),
    "RedefinedObject": FindingCode(
        WARNING, "Two files have one object: `kubectl apply` changes it, `kubectl create` refuses it."
    ),
    "UpdateRefused": FindingCode(ERROR, "The API server refuses this change of an object that exists."),
    "GatedKind": FindingCode(ERROR, "The server serves the kind only with a feature gate that is off."),
    "RemovedKind": FindingCode(ERROR, "The kind was removed from Kubernetes."),
    "VersionNotServed": FindingCode(ERROR, "The target version of Kubernetes does not serve this API version."),
    "OldVersion": FindingCode(WARNING, "The API version is deprecated, and off unless the server turns it on."),
    "FlatRequest": FindingCode(
        ERROR, "Fields of a request stand where only v1beta1 has them; newer versions have them under `exactly`."
    ),
    "NestedRequest": FindingCode(ERROR, "A v1beta1 request has `exactly`, which that version does not know."),
    "WrappedDevice": FindingCode(ERROR, "Fields of a device stand under `basic`, which only v1beta1 has."),
    "BareDevice": FindingCode(
        ERROR, "Fields of a v1beta1 device stand outside `basic`, where that version drops them."
    ),
    "InlineClaim": FindingCode(ERROR, "A pod's claim entry has `source`, which went with Kubernetes 1.31."),
    "UnknownField": FindingCode(ERROR, "The API has no such field: strict servers refuse it, others drop it."),
    "GatedField": FindingCode(WARNING, "The server drops the field unless a feature gate is on."),
    "InvalidField": FindingCode(ERROR, "The API server refuses the value."),
    "NeverComplete": FindingCode(ERROR, "The pool of a slice can never be complete, so its devices are never used."),
    "RequestsWithoutLimits": FindingCode(ERROR, "An extended resource stands only in requests; it must be in limits."),
    "TaintsEverything": FindingCode(WARNING, "An empty device selector taints all devices of all drivers."),
    "TaintsNothing": FindingCode(WARNING, "A taint rule without device selector taints nothing."),
    "UnknownClass": FindingCode(WARNING, "A request names a DeviceClass that is not there."),
    "UnknownClaim": FindingCode(WARNING, "A pod names a claim or a template that is not there."),
    "ForeignPool": FindingCode(WARNING, "A slice of a driver that names pools after nodes has a pool of another name."),
    "NodeLabelMissing": FindingCode(WARNING, "A pod selects nodes by a label that no node has so."),
    "UnusedClaim": FindingCode(
        NOTE, "No container names the claim: its devices are allocated but not visible to any container."
    ),
    "UnknownRequest": FindingCode(ERROR, "A container names a request that its claim does not have."),
    "AttributeIsCapacity": FindingCode(ERROR, "A selector reads as attribute what drivers publish as capacity."),
    "CapacityIsAttribute": FindingCode(ERROR, "A selector reads as capacity what drivers publish as attribute."),
    "UnknownAttribute": FindingCode(ERROR, "A selector reads what no driver publishes."),
    "UnknownDomain": FindingCode(WARNING, "A selector reads the domain of a driver that publishes nothing here."),
    "WrongConfig": FindingCode(ERROR, "The driver does not take this opaque configuration."),
    "NeedsDriverGate": FindingCode(WARNING, "The driver takes the configuration only with a feature gate of its own."),
    "LargerThanAnyNode": FindingCode(WARNING, "A claim asks for more devices than any one node has."),
    "RolloutStuck": FindingCode(WARNING, "A rollout needs more devices at once than there are, so it never finishes."),
    "AdvertisedTwice": FindingCode(WARNING, "A device plugin and a DRA driver offer the same devices of a node."),
    "MoreThanExist": FindingCode(WARNING, "The pods of a workload together ask for more devices than exist."),
    "UnguardedAttribute": FindingCode(WARNING, "A selector reads what some devices lack, and fails on them."),
    "SelectorFails": FindingCode(WARNING, "A selector fails on some devices when it is evaluated."),
    "NeverTrue": FindingCode(WARNING, "A selector is false for every device."),
    "JustMissed": FindingCode(WARNING, "A threshold lies just above what devices of that size really have."),
    "WrongPartitionProfile": FindingCode(ERROR, "A selector asks for a partition profile that the card cannot have."),
    "OverClaimLimit": FindingCode(ERROR, "A claim asks for more devices than one claim can hold."),
    "SharesNothing": FindingCode(WARNING, "A sharing strategy in a template: each pod gets a device of its own."),
    "TakesWholeDevice": FindingCode(
        WARNING, "A request without an amount takes all of a device that others could share."
    ),
    "MixedClass": FindingCode(WARNING, "A class does not tell whole devices from partitions or virtual functions."),
    "SharedResourceName": FindingCode(
        WARNING, "Two classes have one extendedResourceName: only one of them serves it."
    ),
    "AskedForTwice": FindingCode(WARNING, "Several pods ask for one exclusive device with claims of their own."),
    "OnePodPerNode": FindingCode(WARNING, "More pods with a channel of one domain than nodes: a node has one channel."),
    "UnknownScheduler": FindingCode(WARNING, "No scheduler of this name is known, or seen to run."),
    "TwoSchedulers": FindingCode(WARNING, "Two schedulers give out devices of one driver."),
    "UnknownKind": FindingCode(ERROR, "The API group has no such kind."),
    "TaintRuleMatchesNothing": FindingCode(WARNING, "A taint rule names a driver, pool or device that is not there."),
    "HeldNotPublished": FindingCode(WARNING, "A claim holds a device that no slice shows any longer."),
    "DeviceReplaced": FindingCode(WARNING, "A device that a claim holds has come back as another card."),
    "ConstraintUnmeetable": FindingCode(WARNING, "No node has enough devices that meet the constraint together."),
    "ConstraintNotShared": FindingCode(WARNING, "Not every driver whose devices must match publishes the attribute."),
    "RarelyMeant": FindingCode(WARNING, "A value is allowed, and gives more than a workload should have."),
    "NotTogether": FindingCode(WARNING, "Nothing keeps pods together that can only work with each other in one place."),
    "NodesNeverThere": FindingCode(WARNING, "An object waits for more nodes than its workload has pods."),
    "DriversOwnClass": FindingCode(WARNING, "A claim asks for a class that only the driver's own pods use."),
    "TooManyConsumers": FindingCode(ERROR, "More pods share a claim than may reserve it."),
}
"""Every code there is."""


_ABOUT_NAMES = frozenset(
    {"UnknownField", "FlatRequest", "NestedRequest", "WrappedDevice", "BareDevice", "InlineClaim", "GatedField"}
)
"""Codes that are about a field's name, whatever its value is."""

LINES_MAX = 256 * 1024
"""Characters of a document in which the line of a field is looked for; in larger ones the document's own line is
given."""


def found(
    document: Document, code: str, field: str, message: str, fix: str = "", *edits: Edit, line: int = 0
) -> Finding:
    """A finding at a field (as written) of a document; the line is looked up unless given."""
    span = (
        document.span(field, named=code in _ABOUT_NAMES)
        if not line and len(document.chunk.text) <= LINES_MAX
        else TextSpan(0)
    )
    return Finding(
        code=code,
        severity=CODES[code].severity,
        file=document.file,
        number=document.number,
        item=document.item,
        line=line or span.line or document.chunk.line,
        start=span.start,
        end=span.end,
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
