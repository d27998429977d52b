"""Who gets the same device, and who only believes so? Time-slicing in templates, whole devices given for want of an
amount, classes that hand out parts, one device asked for by several pods, one resource served by two classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dragoman.api.files import Document
from dragoman.api.resource import ResourceSlice
from dragoman.api.selectors import DeviceView, Selector, compile_selector
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import path_text
from dragoman.lint.chains import candidates, claims_of, class_selectors, exact_requests, matching, selectors_of
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.pods import containers, pod_specs
from dragoman.lint.unknown import as_written

TYPE_NAMES = frozenset({"type", "devicetype", "partitiontype", "functiontype", "kind", "isvf", "virtualfunction"})
"""Attributes (bare names in lower case) that tell whole devices from partitions and virtual functions."""
SPLIT_MAX = 4
"""Kinds named in a message."""


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on sharing of one document."""
    if document.kind is None:
        return
    if document.kind_name == "DeviceClass":
        yield from _hands_out_parts(document, world)
        yield from _one_resource(document, world)
    if document.kind_name == "ResourceClaimTemplate":
        yield from _shares_nothing(document, world)
    for path, devices in claims_of(document):
        yield from _takes_whole(document, path, devices, world)
    yield from _asked_twice(document, world)
    yield from _one_pod_a_node(document, world)


# ---- a sharing strategy in a template


def _shares_nothing(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    devices = dig(document.raw, "spec", "spec", "devices")
    users = world.once("users of templates", lambda: _template_users(world)).get(
        (document.namespace, document.name), []
    )
    if not users or max(users) > 1:
        return  # nobody here uses it, or containers of one pod share the device
    for index, entry in enumerate(objects(devices, "config")):
        sharing = dig(entry, "opaque", "parameters", "sharing")
        strategy = text(sharing, "strategy")
        if strategy:
            path = ("spec", "spec", "devices", "config", index, "opaque", "parameters", "sharing", "strategy")
            message = (
                f"sharing by {strategy} in a template shares nothing between pods: each pod gets a claim and a whole "
                "device of its own, and one container uses it"
            )
            fix = "make one ResourceClaim and name it in each pod (resourceClaimName)"
            yield found(document, "SharesNothing", path_text(path), message, fix)


def _template_users(world: ManifestIndex) -> dict[tuple[str, str], list[int]]:
    """By template: for each workload that uses it, how many containers of a pod name the claim."""
    users: dict[tuple[str, str], list[int]] = {}
    for document in world.documents:
        for _, spec in pod_specs(document):
            for entry in objects(spec, "resourceClaims"):
                template = text(entry, "resourceClaimTemplateName")
                if template:
                    number = sum(
                        any(
                            text(used, "name") == text(entry, "name")
                            for used in objects(dig(one, "resources"), "claims")
                        )
                        for _, one in containers(spec)
                    )
                    users.setdefault((document.namespace, template), []).append(number)
    return users


# ---- capacity


def _takes_whole(document: Document, path: ItemPath, devices: Object, world: ManifestIndex) -> Iterator[Finding]:
    greedy = world.once("without default", lambda: _without_default(world))
    if not greedy:
        return
    for index, request in enumerate(objects(devices, "requests")):
        for place, exact in exact_requests(request):
            if exact.get("adminAccess") or dig(exact, "capacity", "requests"):
                continue
            whole = [view for view in _matched(exact, world) if id(view) in greedy]
            if not whole:
                continue
            names = ", ".join(greedy[id(whole[0])])
            message = (
                f"asks for no amount of {names} of devices that several claims may share: it takes the whole device, "
                "nothing is left for others"
            )
            field = path_text(as_written(document, (*path, "requests", index, *place)))
            yield found(document, "TakesWholeDevice", field, message, "set capacity.requests")
            return


def _without_default(world: ManifestIndex) -> dict[int, tuple[str, ...]]:
    """By identity of the view: capacities of a shareable device that are used up where a claim names no amount."""
    every: dict[int, tuple[str, ...]] = {}
    views = iter(world.published.views)
    for document in world.documents:
        if not isinstance(document.value, ResourceSlice):
            continue
        for device in document.value.spec.devices:
            view = next(views)
            if device.allow_multiple_allocations and device.capacity:
                names = [
                    n
                    for n, c in device.capacity.items()
                    if c.request_policy is None or c.request_policy.default is None
                ]
                if names:
                    every[id(view)] = tuple(sorted(names))
    return every


def _matched(exact: Object, world: ManifestIndex) -> list[DeviceView]:
    selectors = selectors_of(exact, world)
    return matching(selectors, world) if selectors is not None else []


# ---- classes


def _hands_out_parts(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    selectors = class_selectors(document.name, world)
    if not selectors:
        return
    reads = _reads(selectors)
    if reads is None:
        return
    requests = world.once("requests by class", lambda: _requests(world)).get(document.name, [])
    serves = bool(text(dig(document.object, "spec"), "extendedResourceName"))
    if requests and not serves:  # what every request asks for itself the class need not
        each = [_reads(own) for own in requests]
        reads |= frozenset.intersection(*(one if one is not None else frozenset() for one in each))
    kinds: dict[tuple[str, str], dict[str, int]] = {}
    for view in matching(selectors, world):
        for domain, values in view.attributes.items():
            for name, value in values.items():
                if name.lower() in TYPE_NAMES and (domain, name) not in reads and (domain, None) not in reads:
                    counts = kinds.setdefault((domain, name), {})
                    shown = str(value).lower() if isinstance(value, bool) else str(value)
                    counts[shown] = counts.get(shown, 0) + 1
    for (domain, name), counts in sorted(kinds.items()):
        if len(counts) > 1:
            said = ", ".join(f"{number} of {kind}" for kind, number in sorted(counts.items())[:SPLIT_MAX])
            message = (
                f"takes devices whatever their {domain}/{name} is ({said}): who asks for a device may get a "
                "partition or a virtual function"
            )
            value = _literal(max(counts, key=counts.__getitem__))
            fix = f"add a selector such as device.attributes['{domain}'].{name} == {value}"
            yield found(document, "MixedClass", "spec.selectors", message, fix)
            return


def _reads(selectors: Iterable[str]) -> frozenset[tuple[str, str | None]] | None:
    """Attributes that selectors read; None: any, or one does not compile."""
    found_: frozenset[tuple[str, str | None]] = frozenset()
    for expression in selectors:
        one = compile_selector(expression)
        if not isinstance(one, Selector) or one.reads.attributes is None:
            return None
        found_ |= one.reads.attributes
    return found_


def _requests(world: ManifestIndex) -> dict[str, list[tuple[str, ...]]]:
    """By class: the own selectors of each request for it."""
    every: dict[str, list[tuple[str, ...]]] = {}
    for document in world.documents:
        for _, devices in claims_of(document):
            for request in objects(devices, "requests"):
                for _, exact in exact_requests(request):
                    own = tuple(text(dig(one, "cel"), "expression") for one in objects(exact, "selectors"))
                    every.setdefault(text(exact, "deviceClassName"), []).append(own)
    return every


def _literal(value: str) -> str:
    return value if value in ("true", "false") or value.isdigit() else f"'{value}'"


def _one_resource(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    resource = text(dig(document.object, "spec"), "extendedResourceName")
    others = world.once("classes by resource", lambda: _by_resource(world)).get(resource, []) if resource else []
    if len(others) < 2 or document.name == others[0][1]:
        return
    first = others[0][1]
    message = (
        f"{', '.join(name for _, name in others if name != document.name)} has extendedResourceName {resource}, too: "
        f"pods that ask for it get devices of {first}"
    )
    message += ", which is newer" if others[0][0] > _made(document) else ", whose name comes first"
    yield found(document, "SharedResourceName", "spec.extendedResourceName", message, "keep it in one class")


def _by_resource(world: ManifestIndex) -> dict[str, list[tuple[str, str]]]:
    """Classes by the resource that they serve, the one that wins first: the newest, then by name."""
    every: dict[str, list[tuple[str, str]]] = {}
    for name in world.names("DeviceClass"):
        owner = world.find("DeviceClass", "", name)
        resource = text(dig(owner.object, "spec"), "extendedResourceName") if owner is not None else ""
        if owner is not None and resource:
            every.setdefault(resource, []).append((_made(owner), name))
    for classes in every.values():
        classes.sort(key=lambda one: one[1])
        classes.sort(key=lambda one: one[0], reverse=True)
    return every


def _made(document: Document) -> str:
    return text(dig(document.object, "metadata"), "creationTimestamp")


# ---- one device, several pods


def _asked_twice(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Pods with claims of their own for the one device that a selector of theirs picks out."""
    asked = world.once("single devices", lambda: _single_devices(world))
    for mine in asked.get(id(document), ()):
        others = [
            (other, pods)
            for other in world.documents
            for theirs, pods in _pairs(asked.get(id(other), ()))
            if theirs == mine[0] and other is not document
        ]
        total = mine[1] + sum(pods for _, pods in others)
        if total < 2 or not world.is_given(document):
            continue
        who = ", ".join(dict.fromkeys(other.subject for other, _ in others)) or f"its {mine[1]} pods"
        message = f"asks for one exclusive device that is asked for by {total} pods ({who}): one of them runs at a time"
        fix = "let them share one ResourceClaim, or ask for any device of the class"
        yield found(document, "AskedForTwice", path_text(mine[2]), message, fix)


_Asked = tuple[int, int, ItemPath]
"""Identity of the device's view, how many pods ask for it, and where."""


def _pairs(asked: Any) -> Iterator[tuple[int, int]]:
    for one in asked:
        yield one[0], one[1]


def _single_devices(world: ManifestIndex) -> dict[int, list[_Asked]]:
    """By id of a document with pods: devices that its own claims pick out of several."""
    found_: dict[int, list[_Asked]] = {}
    for document in world.documents:
        if dig(document.raw, "metadata").get("ownerReferences"):
            continue
        spec = dig(document.raw, "spec")
        pods = spec.get("replicas", spec.get("parallelism", 1))
        for path, pod in pod_specs(document):
            for index, entry in enumerate(objects(pod, "resourceClaims")):
                devices, number = _claim(document, entry, pods if isinstance(pods, int) else 1, world)
                for request in objects(devices, "requests"):
                    single = _single(request, world)
                    if single is not None:
                        place = (*path, "resourceClaims", index)
                        found_.setdefault(id(document), []).append((id(single), number, place))
    return found_


def _claim(document: Document, entry: Object, pods: int, world: ManifestIndex) -> tuple[Object, int]:
    """The devices of a pod's claim entry, and how many claims of it there are: pods that name one claim share it."""
    template = world.find("ResourceClaimTemplate", document.namespace, text(entry, "resourceClaimTemplateName"))
    if template is not None:
        return dig(template.object, "spec", "spec", "devices"), pods
    name = text(entry, "resourceClaimName")
    claim = world.find("ResourceClaim", document.namespace, name)
    users = world.users.get((document.namespace, name), {})
    if claim is None or next(iter(users), id(document)) != id(document):
        return {}, 0
    return dig(claim.object, "spec", "devices"), 1


def _single(request: Object, world: ManifestIndex) -> DeviceView | None:
    """The one exclusive device that the request's own selector picks out of several of its class."""
    exact = dig(request, "exactly")
    if not exact or exact.get("adminAccess") or not items(exact, "selectors"):
        return None
    matched = _matched(exact, world)
    if len(matched) != 1 or matched[0].allow_multiple_allocations:
        return None
    of_class = candidates({"exactly": {"deviceClassName": text(exact, "deviceClassName")}}, world)
    return matched[0] if len(of_class) > 1 else None


# ---- channels


def _one_pod_a_node(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """A domain's template gives one channel a node, so a node takes one of its pods."""
    spec = dig(document.raw, "spec")
    pods = spec.get("replicas", spec.get("parallelism", 1))
    nodes = len(world.names("Node"))
    if not nodes or not isinstance(pods, int) or pods <= nodes:
        return
    for path, pod in pod_specs(document):
        for index, entry in enumerate(objects(pod, "resourceClaims")):
            made = world.made.get((document.namespace, text(entry, "resourceClaimTemplateName")))
            if made is None:
                continue
            maker, kind = made
            message = (
                f"{pods} pods with a channel of {kind.kind} {maker.name} each, and {nodes} nodes: a node has one "
                "channel of a domain, so that no more than one of these pods runs on it"
            )
            fix = f"run at most {nodes} pods, with several ranks in each"
            yield found(document, "OnePodPerNode", path_text((*path, "resourceClaims", index)), message, fix)
