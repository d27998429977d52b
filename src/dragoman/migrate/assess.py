"""Who touches GPUs on the device plugin path, on which nodes, and how hard is each to move?

Reads manifests, dumps, values and templates of Helm charts and patches of Kustomize. Hard is what `rewrite` says of the
object: it is tried, not guessed. Never writes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from dragoman.api.yamltext import Broken, parse_exact
from dragoman.migrate import labels, limits, podspec
from dragoman.migrate.parts import FileParts
from dragoman.migrate.proof import satisfied
from dragoman.migrate.report import REFUSED
from dragoman.migrate.resources import HAMI_ANNOTATIONS, KAI_ANNOTATIONS, is_gpu_resource
from dragoman.migrate.rewrite import DRA, Target, line_of, rewrite, values_of
from dragoman.migrate.todra import dotted, requirements_of

AUTOMATIC = "automatic"
LOSSES = "with-losses"
BY_HAND = "by-hand"
DIFFICULTIES = (AUTOMATIC, LOSSES, BY_HAND)

POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "pool",
)
"""Labels by which platforms name node pools, the first that a node has."""
NO_POOL = "(none)"
USUAL_LIST = "`kubectl get pods -o json | jq` on limits of nvidia.com/gpu"
USUAL_LABEL = "nvidia.com/gpu.present=true"
"""What inventories are usually made by, which misses much."""

CATEGORIES = (
    "container", "init-container", "node-selector", "affinity", "toleration", "priority", "annotation", "quota",
    "limit-range", "helm-value", "helm-template", "kustomize-patch",
)  # fmt: skip
_RESOURCE = re.compile(
    r"(?:nvidia\.com|amd\.com|gpu\.intel\.com|koordinator\.sh|aliyun\.com|volcano\.sh)/[A-Za-z0-9._-]+"
)
_POINTER = re.compile(
    r"(nvidia\.com|amd\.com|gpu\.intel\.com|volcano\.sh|aliyun\.com|koordinator\.sh)~1([A-Za-z0-9._-]+)"
)


class GpuUse(msgspec.Struct, frozen=True):
    """One place that touches GPUs. category: one of CATEGORIES. what: the resource, label or key; amount: as written.

    pools: node pools on which its pods could run, or run; (NO_POOL,) if none is shown that could have them. difficulty:
    of its object. missed: why the usual kubectl and jq commands do not list it, "" if they do.
    """

    category: str
    file: str
    line: int
    object: str
    field: str
    what: str
    amount: str
    pools: tuple[str, ...]
    difficulty: str
    reasons: tuple[str, ...]
    missed: str


class NodePool(msgspec.Struct, frozen=True):
    """Nodes of one pool that have GPUs. resources: allocatable amounts by name, of all its nodes; devices: published
    to DRA. requested: amounts that workloads which fit only here ask for, replicas counted."""

    name: str
    nodes: tuple[str, ...]
    products: tuple[str, ...]
    resources: dict[str, int]
    devices: int
    requested: dict[str, int]
    unlabelled: tuple[str, ...]


class UseInventory(msgspec.Struct, frozen=True):
    """All that was found. unread: files that could not be read, with the reason."""

    uses: tuple[GpuUse, ...]
    pools: tuple[NodePool, ...]
    unread: tuple[tuple[str, str], ...]

    @property
    def by_difficulty(self) -> dict[str, int]:
        """Objects of each class."""
        objects = {(use.file, use.object): use.difficulty for use in self.uses}
        counts = Counter(objects.values())
        return {name: counts[name] for name in DIFFICULTIES}

    def as_json(self) -> dict[str, Any]:
        """The body of the JSON."""
        return {
            "objects": self.by_difficulty,
            "uses": [msgspec.to_builtins(use) for use in self.uses],
            "pools": [msgspec.to_builtins(pool) for pool in self.pools],
            "unread": [{"file": file, "message": message} for file, message in self.unread],
        }


class _Node(msgspec.Struct):
    name: str
    labels: dict[str, str]
    taints: list[dict[str, Any]]
    resources: dict[str, int]
    pool: str


def assess(files: Iterable[tuple[str, str]], *, pool_label: str = "") -> UseInventory:
    """The inventory of these files. pool_label: the label that names pools, where it is none of POOL_LABELS."""
    files = list(files)
    patches = _patches(files)
    unread: list[tuple[str, str]] = []
    read: list[tuple[str, str, FileParts | None]] = []
    for name, text in files:
        parts = None
        if not _is_template(name, text):
            try:
                parts = FileParts(text, name)
            except Broken as error:
                if not _json_patch(text):
                    unread.append((name, error.what))
                    continue
        read.append((name, text, parts))
    objects = [value for _, _, parts in read if parts is not None for value in _objects(parts)]
    nodes = [_node(value, pool_label) for value in objects if value.get("kind") == "Node"]
    owners = {(str(v.get("kind")), _name(v), _namespace(v)) for v in objects}
    uses: list[GpuUse] = []
    requested: dict[str, Counter[str]] = {}
    for name, text, parts in read:
        if parts is None:
            uses += _of_text(name, text)
            continue
        if _is_values(name, parts):
            uses += _of_values(name, text)
            continue
        for part in parts.objects:
            for value, path in values_of(part):
                if _is_owned(value, owners):
                    continue
                found = [
                    msgspec.structs.replace(use, line=line_of(part, part.text, path, use.field))
                    for use in _of_object(name, value, nodes, is_patch=name in patches)
                ]
                uses += _judged(found, value)
                _count(value, found, requested)
    return UseInventory(tuple(uses), tuple(_pools(nodes, objects, requested)), tuple(unread))


# ---- objects


def _of_object(file: str, value: dict[str, Any], nodes: Sequence[_Node], *, is_patch: bool) -> Iterator[GpuUse]:
    subject = f"{value.get('kind')} {_namespace(value)}/{_name(value)}"
    kind = value.get("kind")

    def use(category: str, field: str, what: str, amount: Any, pools: Sequence[str], missed: str) -> GpuUse:
        if is_patch:
            category, missed = "kustomize-patch", "it is a patch in a file, not an object of the cluster"
        return GpuUse(category, file, 0, subject, field, what, str(amount), tuple(pools), AUTOMATIC, (), missed)

    if kind == "ResourceQuota":
        for key in limits.quota_keys(podspec.at(value, ("spec", "hard"))):
            yield use("quota", f"spec.hard[{key}]", key, value["spec"]["hard"][key], (), "quotas are not listed")
        return
    if kind == "LimitRange":
        for number, entry in enumerate(podspec.at(value, ("spec", "limits")) or ()):
            for bound, amounts in entry.items() if isinstance(entry, dict) else ():
                for key in limits.quota_keys(amounts) if isinstance(amounts, dict) else ():
                    where = f"spec.limits[{number}].{bound}[{key}]"
                    yield use("limit-range", where, key, amounts[key], (), "limit ranges are not listed")
        return
    for path in podspec.specs(value):
        spec = podspec.at(value, path)
        metadata = podspec.at(value, (*path[:-1], "metadata")) or {}
        asked: dict[str, int] = {}
        found: list[tuple[str, str, str, Any, str]] = []
        for place, container in podspec.containers(spec):
            amounts = podspec.at(container, ("resources", "limits"))
            for key, amount in amounts.items() if isinstance(amounts, dict) else ():
                if not is_gpu_resource(str(key)):
                    continue
                asked[key] = asked.get(key, 0) + (int(amount) if str(amount).isdigit() else 0)
                category = "container" if place[0] == "containers" else "init-container"
                where = f"{dotted((*path, *place))}.resources.limits[{key}]"
                found.append((category, where, key, amount, _missed(kind, category, key)))
        for key in (*KAI_ANNOTATIONS, *HAMI_ANNOTATIONS):
            if isinstance(metadata, dict) and key in (metadata.get("annotations") or {}):
                where = f"{dotted(path[:-1])}.metadata.annotations[{key}]".lstrip(".")
                found.append(("annotation", where, key, metadata["annotations"][key], "annotations are not listed"))
        found += _placement(spec, path, touches=bool(found))
        pools = _pools_of(spec, asked, nodes) if found else ()
        for category, where, what, amount, missed in found:
            yield use(category, where, what, amount, pools, missed)


def _placement(spec: dict[str, Any], path: Any, *, touches: bool) -> Iterator[tuple[str, str, str, Any, str]]:
    """Selectors, affinities, tolerations and priorities that have to do with GPUs."""
    missed = "only limits of containers are listed"
    for key, amount in (spec.get("nodeSelector") or {}).items():
        if key.startswith(labels.PREFIX):
            yield "node-selector", f"{dotted(path)}.nodeSelector[{key}]", key, amount, missed
    of_nodes = podspec.at(spec, ("affinity", "nodeAffinity")) or {}
    required = podspec.at(of_nodes, ("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")) or ()
    preferred = of_nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    for term in (*required, *(podspec.at(entry, ("preference",)) for entry in preferred)):
        for wanted in requirements_of(term):
            if wanted.key.startswith(labels.PREFIX):
                yield "affinity", f"{dotted(path)}.affinity.nodeAffinity", wanted.key, str(wanted), missed
    for number, entry in enumerate(spec.get("tolerations") or ()):
        key = str(entry.get("key") or "") if isinstance(entry, dict) else ""
        if is_gpu_resource(key):
            yield "toleration", f"{dotted(path)}.tolerations[{number}]", key, entry.get("operator", "Equal"), missed
    if touches and spec.get("priorityClassName"):
        name = str(spec["priorityClassName"])
        yield "priority", f"{dotted(path)}.priorityClassName", name, "", missed


def _missed(kind: Any, category: str, resource: str) -> str:
    if kind != "Pod":
        return "only pods that exist are listed, not what makes them"
    if category == "init-container":
        return "init containers are not listed"
    return "" if resource == "nvidia.com/gpu" else "only nvidia.com/gpu is listed"


def _judged(found: list[GpuUse], value: dict[str, Any]) -> list[GpuUse]:
    """With the difficulty of their object, by rewriting it alone."""
    if not found:
        return []
    text = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False)
    made = rewrite([("object", text)], Target(DRA), check_back=False)
    reasons = tuple(dict.fromkeys(remark.code for remark in made.remarks))
    refused = any(remark.kind == REFUSED for remark in made.remarks)
    difficulty = BY_HAND if refused else LOSSES if reasons else AUTOMATIC
    return [msgspec.structs.replace(use, difficulty=difficulty, reasons=reasons) for use in found]


# ---- files that hold no objects


def _is_template(name: str, text: str) -> bool:
    return name.endswith((".tpl", ".txt")) or ("{{" in text and bool(re.search(r"\{\{-?\s*\S", text)))


def _is_values(name: str, parts: FileParts) -> bool:
    """Values of a chart: an object without a kind."""
    stem = name.rpartition("/")[2]
    return stem.startswith("values") and all("kind" not in part.value for part in parts.objects)


def _of_values(name: str, text: str) -> Iterator[GpuUse]:
    value = parse_exact(text, name)
    for path, key, amount in _keys(value, ()):
        field = dotted((*path, key)) if "/" not in key else f"{dotted(path)}[{key}]"
        line = next((n for n, each in enumerate(text.splitlines(), 1) if key in each), 0)
        yield GpuUse("helm-value", name, line, "values", field, key, str(amount), (), LOSSES, ("Template",),
                     "it is a value of a chart, not an object of the cluster")  # fmt: skip


def _keys(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        if isinstance(key, str) and (is_gpu_resource(key) or key.startswith(labels.PREFIX)):
            yield path, key, inner
        yield from _keys(inner, (*path, key))


def _of_text(name: str, text: str) -> Iterator[GpuUse]:
    """Lines of a template, or of a JSON patch."""
    is_patch = _json_patch(text)
    category = "kustomize-patch" if is_patch else "helm-template"
    missed = "it is a patch in a file" if is_patch else "it is a template of a chart"
    for number, line in enumerate(text.splitlines(), 1):
        names = _RESOURCE.findall(line) + ["/".join(found) for found in _POINTER.findall(line)]
        for what in dict.fromkeys(names):
            amount = line.partition(what)[2].lstrip("\"': ").strip()
            yield GpuUse(category, name, number, "patch" if is_patch else "template", "", what, amount, (), LOSSES,
                         ("Template",), f"{missed}, not an object of the cluster")  # fmt: skip


def _json_patch(text: str) -> bool:
    """Whether it is a list of operations (RFC 6902)."""
    try:
        value = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        return False
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) and "op" in e for e in value)


def _patches(files: Iterable[tuple[str, str]]) -> set[str]:
    """Names of files that a kustomization names as patches."""
    found = set()
    for name, text in files:
        folder, _, file = name.rpartition("/")
        if file.rpartition(".")[0] != "kustomization":
            continue
        try:
            value = parse_exact(text, name)
        except Broken:
            continue
        listed = [*(value.get("patches") or ()), *(value.get("patchesStrategicMerge") or ()),
                  *(value.get("patchesJson6902") or ())]  # fmt: skip
        for entry in listed:
            path = entry.get("path") if isinstance(entry, dict) else entry
            if path:
                found.add(f"{folder}/{str(path).removeprefix('./')}" if folder else str(path).removeprefix("./"))
    return found


# ---- nodes


def _node(value: dict[str, Any], pool_label: str) -> _Node:
    written = {str(k): str(v) for k, v in (podspec.at(value, ("metadata", "labels")) or {}).items()}
    named = [written[key] for key in ((pool_label,) if pool_label else POOL_LABELS) if key in written]
    product = written.get(labels.PREFIX + "gpu.product", NO_POOL)
    amounts = podspec.at(value, ("status", "allocatable")) or podspec.at(value, ("status", "capacity")) or {}
    resources = {k: int(v) for k, v in amounts.items() if is_gpu_resource(k) and str(v).isdigit()}
    taints = podspec.at(value, ("spec", "taints")) or []
    return _Node(_name(value), written, taints, resources, named[0] if named else product)


def _pools_of(spec: dict[str, Any], asked: Mapping[str, int], nodes: Sequence[_Node]) -> list[str]:
    bound = spec.get("nodeName")
    if bound:
        return [node.pool for node in nodes if node.name == bound] or [NO_POOL]
    found = dict.fromkeys(node.pool for node in nodes if node.resources and _fits(spec, asked, node))
    return list(found) or [NO_POOL]


def _fits(spec: dict[str, Any], asked: Mapping[str, int], node: _Node) -> bool:
    if any(node.labels.get(key) != str(wanted) for key, wanted in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    terms = podspec.at(spec, required)
    if terms and not any(all(satisfied(w, node.labels) for w in requirements_of(term)) for term in terms):
        return False
    for taint in node.taints:
        if taint.get("effect") not in ("NoSchedule", "NoExecute") or taint.get("key") in asked:
            continue  # the admission plugin ExtendedResourceToleration tolerates taints of resources that are asked for
        if not any(_tolerates(entry, taint) for entry in spec.get("tolerations") or ()):
            return False
    return all(node.resources.get(key, 0) >= min(count, 1) for key, count in asked.items())


def _tolerates(entry: dict[str, Any], taint: dict[str, Any]) -> bool:
    if entry.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not entry.get("key"):
        return entry.get("operator") == "Exists"
    same = entry.get("key") == taint.get("key")
    return same and (entry.get("operator") == "Exists" or (entry.get("value") or "") == (taint.get("value") or ""))


def _pools(
    nodes: Sequence[_Node], objects: Sequence[dict[str, Any]], requested: Mapping[str, Counter[str]]
) -> Iterator[NodePool]:
    devices: Counter[str] = Counter()
    for value in objects:
        if value.get("kind") == "ResourceSlice" and podspec.at(value, ("spec", "driver")) == "gpu.nvidia.com":
            devices[str(podspec.at(value, ("spec", "nodeName")))] += len(podspec.at(value, ("spec", "devices")) or ())
    by_pool: dict[str, list[_Node]] = {}
    for node in nodes:
        if node.resources or devices[node.name]:
            by_pool.setdefault(node.pool, []).append(node)
    for name, members in sorted(by_pool.items()):
        totals: Counter[str] = Counter()
        for node in members:
            totals.update(node.resources)
        products = sorted({node.labels.get(labels.PREFIX + "gpu.product", "") for node in members} - {""})
        yield NodePool(
            name,
            tuple(sorted(node.name for node in members)),
            tuple(products),
            dict(sorted(totals.items())),
            sum(devices[node.name] for node in members),
            dict(sorted(requested.get(name, Counter()).items())),
            tuple(sorted(n.name for n in members if n.labels.get(labels.PREFIX + "gpu.present") != "true")),
        )


def _count(value: dict[str, Any], found: Sequence[GpuUse], requested: dict[str, Counter[str]]) -> None:
    """What a workload asks of the only pool that it fits on, replicas counted."""
    replicas = podspec.at(value, ("spec", "replicas"))
    times = replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 1
    for use in found:
        if use.category == "container" and len(use.pools) == 1 and use.amount.isdigit():
            requested.setdefault(use.pools[0], Counter())[use.what] += int(use.amount) * times


# ---- objects of files


def _objects(parts: FileParts) -> Iterator[dict[str, Any]]:
    for part in parts.objects:
        for value, _ in values_of(part):
            yield value


def _is_owned(value: dict[str, Any], owners: set[tuple[str, str, str]]) -> bool:
    """Whether its controller is among the objects too, and stands for it."""
    for owner in podspec.at(value, ("metadata", "ownerReferences")) or ():
        if isinstance(owner, dict) and (str(owner.get("kind")), str(owner.get("name")), _namespace(value)) in owners:
            return True
    return False


def _name(value: dict[str, Any]) -> str:
    return str(podspec.at(value, ("metadata", "name")) or podspec.at(value, ("metadata", "generateName")) or "")


def _namespace(value: dict[str, Any]) -> str:
    return str(podspec.at(value, ("metadata", "namespace")) or "default")
