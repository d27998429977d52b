"""What does a pod become whose containers ask a device plugin for GPUs? Pod claims, templates of claims, and selectors.

Where a field goes in the text says what it was, so that the way back finds it (`toplugin`): `claims` stands where
`limits` was, before limits if the resource was their first entry, behind requests if they repeated it; `resourceClaims`
stands where a nodeSelector was that became selectors. Quotes and braces are those of the field before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dragoman.migrate import labels, podspec
from dragoman.migrate.labels import LabelRequirement, Untranslatable
from dragoman.migrate.podspec import SharedDevices
from dragoman.migrate.report import Unmovable
from dragoman.migrate.resources import (
    GPU_CLASS,
    HAMI_ANNOTATIONS,
    IMPLICIT,
    KAI_ANNOTATIONS,
    MIG_CLASS,
    DeviceKind,
    PluginUse,
    asks,
)
from dragoman.migrate.yamledit import NO_COMMENTS, Comments, Editor, Flow, Path, QuotedScalar

_REQUIRED = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


class MovedLabels(NamedTuple):
    """Requirements of a pod that become selectors, and what is to be taken out for it.

    selectors: CEL, of all of them. labels: keys of the nodeSelector; terms: of the affinity's only term the numbers of
    the expressions, or None for all terms. left: (field, requirement, why) of what stays.
    """

    selectors: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    expressions: tuple[int, ...] | None = ()
    left: tuple[tuple[str, str, str], ...] = ()
    moved: tuple[LabelRequirement, ...] = ()


class PodRewrite(NamedTuple):
    """A pod whose text was edited. claims: (pod claim, spec of its template); losses: (code, field, message, help)."""

    claims: tuple[tuple[str, dict[str, Any]], ...]
    losses: tuple[tuple[str, str, str, str], ...]
    moved: tuple[LabelRequirement, ...]


def asked(spec: dict[str, Any], field: str) -> dict[Path, list[PluginUse]]:
    """What each container asks of device plugins. Raises Unmovable."""
    found = {}
    for path, container in podspec.containers(spec):
        resources = container.get("resources")
        if isinstance(resources, dict):
            own = asks(resources, f"{field}.{path[0]}[{path[1]}].resources")
            if own:
                found[path] = own
    return found


def refuse_other_schedulers(metadata: Any, spec: dict[str, Any], field: str) -> None:
    """GPUs that are asked for in annotations. Raises Unmovable."""
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return
    for name in KAI_ANNOTATIONS:
        if name in annotations:
            raise Unmovable(
                "NoCounterpart",
                f"metadata.annotations[{name}]",
                f"{name}: KAI-Scheduler shares GPUs on the device plugin path only; DRA requests no fractions",
                "ask for a whole GPU, or for a MIG device or memory in a ResourceClaim",
            )
    for name in HAMI_ANNOTATIONS:
        if name in annotations and any(True for _ in podspec.containers(spec)) and asked(spec, field):
            raise Unmovable(
                "NoCounterpart",
                f"metadata.annotations[{name}]",
                f"{name}: HAMi chooses GPUs by this annotation, which DRA does not read",
                "write a selector on productName or uuid, and take the annotation out",
            )


# ---- claims


def to_claims(ed: Editor, path: Path, name_of: Any) -> PodRewrite | None:
    """Edit the pod spec at the path; None if it asks for no device. name_of(claim, spec): the template's name.

    Raises Unmovable and CannotEdit.
    """
    spec = ed.at(path)
    field = dotted(path)
    found = asked(spec, field)
    if not found:
        return None
    placed = placement(spec) if any(is_nvidia(ask.kind) for own in found.values() for ask in own) else MovedLabels()
    entries: dict[Path, list[dict[str, Any]]] = {container: [] for container in found}
    claims: list[tuple[str, dict[str, Any]]] = []
    taken = {entry.get("name") for entry in spec.get("resourceClaims") or [] if isinstance(entry, dict)}
    for kind, counts in podspec.by_kind(found).items():
        parts = podspec.segments(kind, podspec.spans(spec, counts))
        claim = _free(kind.base, taken)
        taken.add(claim)
        more = placed.selectors if is_nvidia(kind) else ()
        requests = [kind.request(part.name, part.count, more) for part in parts]
        claims.append((claim, {"devices": {"requests": requests}}))
        _enter(entries, claim, parts)
    for container, own in found.items():
        keys = [key for ask in own for key in ask.keys]
        _container(ed, (*path, *container, "resources"), keys, entries[container])
    _pod(ed, path, [(claim, name_of(claim, made)) for claim, made in claims], placed)
    losses = [
        (code, field, message, help_) for own in found.values() for ask in own for code, message, help_ in ask.losses
    ]
    losses += [
        ("LabelStays", f"{field}.{where}", f"{what}: {why}; without GFD no node has the label", _LABEL_HELP)
        for where, what, why in placed.left
    ]
    return PodRewrite(tuple(claims), tuple(dict.fromkeys(losses)), placed.moved)


_LABEL_HELP = "label the nodes yourself, or write a selector on an attribute of the device"


def dotted(path: Path) -> str:
    """`spec.template.spec`, `items[0].spec`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def is_nvidia(kind: DeviceKind) -> bool:
    """Whether GPU Feature Discovery describes such devices."""
    return kind.device_class in (GPU_CLASS, MIG_CLASS)


def _free(base: str, taken: set[Any]) -> str:
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


def _enter(entries: dict[Path, list[dict[str, Any]]], claim: str, parts: list[SharedDevices]) -> None:
    for part in parts:
        for container in part.containers:
            entry = {"name": claim} if len(parts) == 1 else {"name": claim, "request": part.name}
            entries[container].append(entry)


def _container(ed: Editor, at: Path, keys: list[str], entries: list[dict[str, Any]]) -> None:
    """Take the keys out of limits and requests and put the entries into claims."""
    limits, requests = (*at, "limits"), (*at, "requests")
    order = ed.keys(at)
    has_requests = "requests" in order and isinstance(ed.at(requests), dict)
    named = ed.keys(limits)
    mine = [key for key in named if key in keys]
    repeated = [key for key in ed.keys(requests) if key in keys] if has_requests else []
    limits_stay = len(mine) < len(named)
    requests_stay = has_requests and len(repeated) < len(ed.keys(requests))
    was_first = limits_stay and named[0] in mine
    comments = _gathered(ed, [(*limits, key) for key in mine] + [(*requests, key) for key in repeated])
    quote = ed.quote_of((*limits, mine[0]))
    value: Any = [{**entry, "name": QuotedScalar(entry["name"], quote)} for entry in entries]
    if ed.is_flow(limits) and not ed.is_flow(at):
        value = Flow(value)
    if has_requests and repeated and not requests_stay:
        ed.remove(requests)
    for key in repeated if requests_stay else ():
        ed.remove((*requests, key))
    if limits_stay:
        for key in mine:
            ed.remove((*limits, key))
    if isinstance(ed.at((*at, "claims")), list) and ed.at((*at, "claims")):
        for entry in value.value if isinstance(value, Flow) else value:
            ed.append((*at, "claims"), entry, comments)
            comments = NO_COMMENTS
        if not limits_stay:
            ed.remove(limits)
    elif not limits_stay:
        ed.replace(limits, "claims", value, comments)
    else:
        before, after = _place(order, requests_stay, was_first, bool(repeated))
        ed.insert(at, "claims", value, before=before, after=after, comments=comments)


def _place(order: list[str], requests_stay: bool, was_first: bool, repeated: bool) -> tuple[str | None, str | None]:
    """Before or after which field the claims go."""
    if not requests_stay:
        return ("limits", None) if was_first else (None, "limits")
    if order.index("limits") < order.index("requests"):
        if repeated:
            return None, "requests"
        return ("limits", None) if was_first else (None, "limits")
    if repeated:
        return "requests", None
    return (None, "requests") if was_first else (None, "limits")


def _gathered(ed: Editor, fields: list[Path]) -> Comments:
    """The comments of several fields as those of one: what stood behind the others goes above."""
    above: list[str] = []
    behind = ""
    for number, field in enumerate(fields):
        found = ed.comments_of(field)
        above += found.above
        if number == 0:
            behind = found.behind
        elif found.behind.strip():
            above.append(found.behind.strip())
    return Comments(tuple(above), behind)


def _pod(ed: Editor, path: Path, claims: list[tuple[str, str]], placed: MovedLabels) -> None:
    """Put resourceClaims in, and take out what became selectors."""
    value: Any = [{"name": claim, "resourceClaimTemplateName": template} for claim, template in claims]
    selector = (*path, "nodeSelector")
    comments = _gathered(ed, [(*selector, key) for key in placed.labels])
    has_claims = isinstance(ed.at((*path, "resourceClaims")), list) and bool(ed.at((*path, "resourceClaims")))
    vanishes = bool(placed.labels) and len(placed.labels) == len(ed.keys(selector))
    if placed.labels and not vanishes:
        for key in placed.labels:
            ed.remove((*selector, key))
    gone = _affinity(placed, ed.at((*path, *_REQUIRED)), ed, path)
    if vanishes and not has_claims:
        if ed.is_flow(selector) and not ed.is_flow(path):
            value = Flow(value)
        ed.replace(selector, "resourceClaims", value, comments)
    elif vanishes:
        ed.remove(selector)
    if gone is not None and not has_claims and not vanishes and gone == (*path, "affinity"):
        ed.replace(gone, "resourceClaims", value, comments)
    else:
        if gone is not None:
            ed.remove(gone)
        if has_claims:
            for entry in value:
                ed.append((*path, "resourceClaims"), entry)
        elif not vanishes:
            ed.insert(path, "resourceClaims", value, comments=comments)


def _affinity(placed: MovedLabels, terms: Any, ed: Editor, path: Path) -> Path | None:
    """Take the expressions out; what would be left empty is returned instead, to be taken out whole."""
    if placed.expressions is not None and not placed.expressions:
        return None
    listed = (*path, *_REQUIRED)
    if placed.expressions is not None:
        term = terms[0]
        if len(placed.expressions) < len(term["matchExpressions"]):
            for number in reversed(placed.expressions):
                ed.remove((*listed, 0, "matchExpressions", number))
            return None
        if len(term) > 1:
            return (*listed, 0, "matchExpressions")
    gone = listed[:-1]
    while len(gone) > len(path) + 1 and len(ed.at(gone[:-1])) == 1:
        gone = gone[:-1]
    return gone


# ---- node labels


def placement(spec: dict[str, Any]) -> MovedLabels:
    """What of a pod's nodeSelector and required node affinity becomes selectors."""
    selectors: list[str] = []
    moved: list[LabelRequirement] = []
    left: list[tuple[str, str, str]] = []
    keys = []
    chosen = spec.get("nodeSelector")
    for key, value in (chosen if isinstance(chosen, dict) else {}).items():
        if not labels.is_gfd(key):
            continue
        wanted = LabelRequirement(key, "=", (str(value),))
        try:
            selectors.append(labels.selector(wanted))
            keys.append(key)
            moved.append(wanted)
        except Untranslatable as error:
            left.append((f"nodeSelector[{key}]", str(wanted), str(error)))
    terms = podspec.at(spec, _REQUIRED)
    expressions: tuple[int, ...] | None = ()
    if isinstance(terms, list) and terms:
        expressions, more, of_terms = _terms(terms, left)
        selectors += more
        moved += of_terms
    for number, preferred in enumerate(
        podspec.at(spec, ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")) or ()
    ):
        for wanted in requirements_of(podspec.at(preferred, ("preference",))):
            if labels.is_gfd(wanted.key):
                where = f"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{number}]"
                left.append((where, str(wanted), "it is a preference, and a request has no weights"))
    return MovedLabels(tuple(selectors), tuple(keys), expressions, tuple(left), tuple(moved))


def _terms(
    terms: list[Any], left: list[tuple[str, str, str]]
) -> tuple[tuple[int, ...] | None, list[str], list[LabelRequirement]]:
    where = ".".join(map(str, _REQUIRED))
    if len(terms) == 1:
        numbers, selectors, moved = [], [], []
        for number, wanted in enumerate(requirements_of(terms[0])):
            if not labels.is_gfd(wanted.key):
                continue
            try:
                selectors.append(labels.selector(wanted))
                numbers.append(number)
                moved.append(wanted)
            except Untranslatable as error:
                left.append((f"{where}[0].matchExpressions[{number}]", str(wanted), str(error)))
        return tuple(numbers), selectors, moved
    all_wanted = [requirements_of(term) for term in terms]
    if not any(labels.is_gfd(wanted.key) for term in all_wanted for wanted in term):
        return (), [], []
    only_gfd = all(
        term and all(labels.is_gfd(wanted.key) for wanted in term) and set(raw) <= {"matchExpressions"}
        for term, raw in zip(all_wanted, terms, strict=True)
    )
    if only_gfd:
        try:
            return None, [labels.any_of(all_wanted)], [wanted for term in all_wanted for wanted in term]
        except Untranslatable as error:
            why = str(error)
    else:
        why = "one of several terms asks for labels of the node too"
    first = next(wanted for term in all_wanted for wanted in term if labels.is_gfd(wanted.key))
    left.append((where, str(first), why))
    return (), [], []


def requirements_of(term: Any) -> list[LabelRequirement]:
    """What a node selector term asks of labels."""
    listed = term.get("matchExpressions") if isinstance(term, dict) else None
    return [
        LabelRequirement(str(e.get("key")), str(e.get("operator")), tuple(map(str, e.get("values") or ())))
        for e in (listed if isinstance(listed, list) else ())
        if isinstance(e, dict)
    ]


# ---- extended resources


def to_extended(ed: Editor, path: Path, class_of: Any) -> PodRewrite | None:
    """Edit the pod spec at the path so that its containers ask for extended resources of DeviceClasses.

    class_of(kind, selectors): the name of the class. None if it asks for no device. Raises Unmovable and CannotEdit.
    """
    spec = ed.at(path)
    field = dotted(path)
    found = asked(spec, field)
    if not found:
        return None
    placed = placement(spec) if any(is_nvidia(ask.kind) for own in found.values() for ask in own) else MovedLabels()
    losses: list[tuple[str, str, str, str]] = []
    for container, own in found.items():
        for ask in own:
            where = (*path, *container, "resources")
            if len(ask.keys) > 1 or ask.kind.capacity:
                raise Unmovable(
                    "NeedsAClaim",
                    dotted(where),
                    f"{ask.keys[-1]}: an extended resource is a number of devices, not an amount of one",
                    "use --strategy claims",
                )
            name = IMPLICIT + class_of(ask.kind, placed.selectors if is_nvidia(ask.kind) else ())
            for part in ("limits", "requests"):
                if ask.keys[0] in ed.keys((*where, part)) if part in ed.keys(where) else False:
                    ed.rename((*where, part, ask.keys[0]), name)
            losses += [(code, field, message, help_) for code, message, help_ in ask.losses]
    for key in placed.labels:
        _remove_emptied(ed, (*path, "nodeSelector", key), len(path))
    gone = _affinity(placed, ed.at((*path, *_REQUIRED)), ed, path)
    if gone is not None:
        ed.remove(gone)
    losses += [
        ("LabelStays", f"{field}.{where}", f"{what}: {why}; without GFD no node has the label", _LABEL_HELP)
        for where, what, why in placed.left
    ]
    return PodRewrite((), tuple(dict.fromkeys(losses)), placed.moved)


def _remove_emptied(ed: Editor, path: Path, depth: int) -> None:
    while len(path) > depth + 1 and len(ed.at(path[:-1])) == 1:
        path = path[:-1]
    ed.remove(path)
