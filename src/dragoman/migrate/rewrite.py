"""What do these files look like on the other path? One text in, one text out; what is lost, what is refused.

    result = rewrite([("app.yaml", text)], Target(DRA))
    result.texts["app.yaml"], result.remarks

A workload that cannot be moved stays as it is, whole, with the reason. Doing it twice changes nothing more.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dragoman.api.yamltext import Broken
from dragoman.migrate import labels, limits, podspec
from dragoman.migrate.labels import LabelRequirement
from dragoman.migrate.parts import FilePart, FileParts
from dragoman.migrate.report import LOSS, NOTE, REFUSED, Remark, Unmovable
from dragoman.migrate.resources import GPU_CLASSES, DeviceKind, kind_of_request
from dragoman.migrate.todra import dotted, refuse_other_schedulers, to_claims, to_extended
from dragoman.migrate.toplugin import PluginTemplate, from_extended, template_of, to_plugin
from dragoman.migrate.yamledit import CannotEdit, Editor, Path, block_field

DRA = "dra"
DEVICE_PLUGIN = "device-plugin"
CLAIMS = "claims"
EXTENDED = "extended-resource"
_NAME_MAX = 63
_COMMENT = re.compile(r"(?:^|[ \t])(#[^\r\n]*)", re.MULTILINE)


class Target(msgspec.Struct, frozen=True):
    """Where to: path is DRA or DEVICE_PLUGIN, strategy CLAIMS or EXTENDED (to DRA only)."""

    path: str = DRA
    strategy: str = CLAIMS


class Moved(msgspec.Struct, frozen=True):
    """An object that was rewritten. labels: requirements of node labels that became selectors, or came back."""

    file: str
    object: str
    namespace: str
    labels: tuple[LabelRequirement, ...] = ()


class Migration(msgspec.Struct, frozen=True):
    """The texts after the migration, all of them by name; what was moved; what to know about it."""

    texts: dict[str, str]
    moved: tuple[Moved, ...]
    remarks: tuple[Remark, ...]
    path: str = DRA

    @property
    def refused(self) -> bool:
        """Whether something stays as it was although it asks for GPUs."""
        return any(remark.kind == REFUSED for remark in self.remarks)


def rewrite(files: Iterable[tuple[str, str]], target: Target, *, check_back: bool = True) -> Migration:
    """All files on the other path. Raises yamltext.Broken for one that cannot be read.

    check_back: also go back, and list what then is written otherwise than before.
    """
    files = list(files)
    work = _Work(files, target)
    texts = work.run()
    remarks = list(work.remarks)
    for name, text in files:
        remarks += _lost_comments(name, text, texts[name])
    if check_back and work.moved:
        remarks += _way_back(files, texts, target)
    return Migration(texts, tuple(work.moved), tuple(remarks), target.path)


def _lost_comments(name: str, before: str, after: str) -> list[Remark]:
    lost = Counter(_COMMENT.findall(before)) - Counter(_COMMENT.findall(after))
    return [Remark(LOSS, "CommentLost", name, 0, "", "", f"the comment is not in the result: {text}") for text in lost]


def _way_back(files: Sequence[tuple[str, str]], texts: dict[str, str], target: Target) -> list[Remark]:
    """What the way back writes otherwise than it was."""
    other = Target(DEVICE_PLUGIN if target.path == DRA else DRA)
    try:
        back = rewrite(list(texts.items()), other, check_back=False)
    except Broken:
        return []
    remarks = []
    for name, text in files:
        if texts[name] == text or back.texts[name] == text:
            continue
        lines = set(text.splitlines()) ^ set(back.texts[name].splitlines())
        shown = next((line for line in text.splitlines() if line in lines), next(iter(sorted(lines)), "order of lines"))
        remarks.append(
            Remark(
                NOTE,
                "WrittenOtherwise",
                name,
                0,
                "",
                "",
                f"the way back does not write this file as it was, from: {shown.strip()}",
                "keep the file that you have, in version control",
            )
        )
    return remarks


class _Template(msgspec.Struct):
    name: str
    spec: dict[str, Any]
    namespace: str | None


class _Work:
    """One migration of several files."""

    def __init__(self, files: list[tuple[str, str]], target: Target) -> None:
        self.target = target
        self.files = [(name, FileParts(text, name)) for name, text in files]
        self.moved: list[Moved] = []
        self.remarks: list[Remark] = []
        # Of the way back: templates and classes that the files hold, and how many pods still need each.
        self.templates: dict[tuple[str, str], FilePart] = {}
        self.classes: dict[str, FilePart] = {}
        self.used: Counter[tuple[str, str]] = Counter()
        self.freed: Counter[tuple[str, str]] = Counter()
        self.names: set[tuple[str, str]] = set()

    def run(self) -> dict[str, str]:
        for _, parts in self.files:
            for part in parts.objects:
                for value, _ in values_of(part):
                    self._note(part, value)
        for name, parts in self.files:
            self._file(name, parts)
        if self.target.path == DEVICE_PLUGIN:
            for _, parts in self.files:
                self._drop_unused(parts)
        return {name: parts.text for name, parts in self.files}

    def _note(self, part: FilePart, value: dict[str, Any]) -> None:
        key = (_namespace(value), _name(value))
        kind = value.get("kind")
        if kind == "ResourceClaimTemplate":
            self.templates[key] = part
            self.names.add(key)
        elif kind == "DeviceClass":
            self.classes[_name(value)] = part
        for path in podspec.specs(value):
            spec = podspec.at(value, path)
            for entry in spec.get("resourceClaims") or ():
                if isinstance(entry, dict) and entry.get("resourceClaimTemplateName"):
                    self.used[_namespace(value), str(entry["resourceClaimTemplateName"])] += 1

    # ---- a file

    def _file(self, name: str, parts: FileParts) -> None:
        made: list[_Template] = []
        for part in list(parts.objects):
            new_in_list: list[_Template] = []
            for value, path in values_of(part):
                into = new_in_list if part.item is not None else made
                self._object(name, parts, part, value, path, into)
            if new_in_list:
                self._add_to_list(parts, part, new_in_list)
        if made:
            self._add_documents(parts, made)

    def _object(
        self, name: str, parts: FileParts, part: FilePart, value: dict[str, Any], path: Path, made: list[_Template]
    ) -> None:
        subject = f"{value.get('kind')} {_name(value)}"
        before = part.text
        started = len(made)

        def remark(kind: str, code: str, field: str, message: str, help_: str = "") -> None:
            self.remarks.append(
                Remark(kind, code, name, line_of(part, before, path, field), subject, field, message, help_)
            )

        try:
            ed = Editor(before)
            results = self._edited(ed, value, path, made)
            ed.check()
        except Unmovable as refusal:
            del made[started:]
            remark(REFUSED, refusal.code, refusal.field, refusal.message, refusal.help)
            return
        except CannotEdit as reason:
            del made[started:]
            remark(REFUSED, "CannotEdit", "", f"cannot be edited in place: {reason}", "write the fields out")
            return
        for kind, code, field, message, help_ in results.remarks:
            remark(kind, code, field, message, help_)
        if not ed.changed:
            return
        part.text = ed.text
        self.freed.update(results.freed)
        self.moved.append(Moved(name, subject, _namespace(value), tuple(results.moved)))

    def _edited(self, ed: Editor, value: dict[str, Any], path: Path, made: list[_Template]) -> _Results:
        results = _Results()
        kind = value.get("kind")
        if kind == "ResourceQuota":
            results.remarks += limits.quota(ed, path, self.target.path, self.target.strategy)
        elif kind == "LimitRange":
            if self.target.path == DRA:
                results.remarks += limits.limit_range(ed, path, self.target.strategy)
        elif kind not in ("ResourceClaimTemplate", "DeviceClass"):
            for relative in podspec.specs(value):
                self._spec(ed, value, path, relative, made, results)
        return results

    def _spec(
        self, ed: Editor, value: dict[str, Any], path: Path, relative: Path, made: list[_Template], results: _Results
    ) -> None:
        spec = podspec.at(value, relative)
        place = (*path, *relative)
        if self.target.path == DEVICE_PLUGIN:
            names = to_plugin(ed, place, lambda name: self._plugin_template(_namespace(value), name))
            results.freed += [(_namespace(value), name) for name in names or ()]
            from_extended(ed, place, self._plugin_class)
            return
        metadata = value.get("metadata") if relative == ("spec",) else podspec.at(value, (*relative[:-1], "metadata"))
        field = dotted(relative)
        refuse_other_schedulers(metadata, spec, field)
        if self.target.strategy == EXTENDED:
            done = to_extended(ed, place, lambda kind, selectors: self._class_for(kind, selectors, made))
        else:
            done = to_claims(ed, place, lambda claim, wanted: self._template_for(value, claim, wanted, made))
        if done is None:
            self._without_devices(spec, field, results)
            return
        results.moved += done.moved
        if self.target.strategy == EXTENDED and done.moved:
            results.remarks.append(
                (
                    LOSS,
                    "QuotaOfClass",
                    field,
                    "the pods ask for devices of a DeviceClass with the selectors: quotas of "
                    "gpu.nvidia.com do not count them",
                    "count that class in the quota too, or use --strategy claims",
                )
            )
        prefix = f"{dotted(path)}." if path else ""
        for code, where, message, help_ in done.losses:
            results.remarks.append((LOSS, code, where.removeprefix(prefix), message, help_))
        if self.target.strategy == CLAIMS and spec.get("priorityClassName"):
            results.remarks.append(
                (
                    LOSS,
                    "NoPreemption",
                    f"{field}.priorityClassName",
                    "kube-scheduler does not evict pods to free devices of claims: the priority orders the queue only",
                    "use quotas, or a scheduler that preempts for devices",
                )
            )
        if podspec.TEMPLATES.get(str(value.get("kind"))) is None:
            results.remarks.append(
                (
                    NOTE,
                    "CustomKind",
                    field,
                    f"{value.get('kind')} is a custom kind: its schema must have the fields of pods "
                    "that DRA needs (resourceClaims, resources.claims)",
                    "",
                )
            )

    @staticmethod
    def _without_devices(spec: dict[str, Any], field: str, results: _Results) -> None:
        """A pod without a request that goes to GPU nodes by GFD's labels."""
        for key in spec.get("nodeSelector") or {}:
            if labels.is_gfd(key):
                results.remarks.append(
                    (
                        NOTE,
                        "LabelStays",
                        f"{field}.nodeSelector[{key}]",
                        f"{key} is a label of GPU Feature Discovery, gone without it; the pod requests no device",
                        "select nodes by a label of your own",
                    )
                )

    # ---- templates and classes

    def _template_for(self, value: dict[str, Any], claim: str, spec: dict[str, Any], made: list[_Template]) -> str:
        namespace = _namespace(value)
        written = podspec.at(value, ("metadata", "namespace"))
        for template in made:
            if template.spec == spec and (template.namespace or "default") == namespace:
                return template.name
        base = f"{_name(value) or str(value.get('kind')).lower()}-{claim}"[:_NAME_MAX].rstrip("-.")
        name, number = base, 2
        while (namespace, name) in self.names:
            name, number = f"{base[: _NAME_MAX - 3]}-{number}", number + 1
        self.names.add((namespace, name))
        made.append(_Template(name, spec, written))
        return name

    def _class_for(self, kind: DeviceKind, selectors: tuple[str, ...], made: list[_Template]) -> str:
        """The driver's own class, or one of these files with the selectors."""
        if not selectors and not kind.selectors:
            return kind.device_class
        spec = {"selectors": [{"cel": {"expression": text}} for text in _class_selectors(kind, selectors)]}
        for template in made:
            if template.namespace == "" and template.spec == spec:
                return template.name
        base = "-".join([kind.base, *(_short(text) for text in selectors)])[: _NAME_MAX - 16]
        name, number = f"{base}.nvidia.com", 2
        while name in self.classes or any(t.namespace == "" and t.name == name for t in made):
            name, number = f"{base}-{number}.nvidia.com", number + 1
        made.append(_Template(name, spec, ""))
        return name

    def _plugin_template(self, namespace: str, name: str) -> PluginTemplate | None:
        part = self.templates.get((namespace, name))
        if part is None:
            return None
        for value, _ in values_of(part):
            if value.get("kind") == "ResourceClaimTemplate" and _name(value) == name:
                if str(value.get("apiVersion")) != "resource.k8s.io/v1":
                    raise Unmovable(
                        "OldVersion",
                        f"template {name}: apiVersion",
                        f"{value.get('apiVersion')} is not v1",
                        "dragoman migrate --api v1",
                    )
                return template_of(value) if _requests_gpus(value) else None
        return None

    def _plugin_class(self, name: str) -> tuple[DeviceKind, tuple[LabelRequirement, ...]] | None:
        part = self.classes.get(name)
        if part is None:
            own = kind_of_request(name, [])
            return (own[0], ()) if own else None
        for value, _ in values_of(part):
            if value.get("kind") == "DeviceClass" and _name(value) == name:
                found = _kind_of_class(value)
                self.freed["", name] += 1
                return found
        return None

    # ---- adding and taking out objects

    def _add_documents(self, parts: FileParts, made: list[_Template]) -> None:
        text = parts.text
        offset = next((_offset(part.text) for part in parts.objects), 0)
        ends = text.endswith("\n")
        added = ""
        for template in made:
            if parts.is_json:
                indent = 2 if "\n" in text.strip() else None
                body = json.dumps(_object_of(template), indent=indent, ensure_ascii=False).replace("\n", parts.newline)
            else:
                body = "---" + parts.newline + parts.newline.join(_lines(_object_of(template), 0, offset))
            added += body + parts.newline if ends else parts.newline + body
        parts.all.append(FilePart(added, 0, 0))

    def _add_to_list(self, parts: FileParts, part: FilePart, made: list[_Template]) -> None:
        """New items behind the last one of the list that the part is in."""
        if part.path == ("items",):
            ed = Editor(part.text)
            for template in made:
                ed.append(("items",), _object_of(template))
            part.text = ed.text
            return
        last = [p for p in parts.all if p.path is not None and p.document == part.document][-1]
        at = parts.all.index(last) + 1
        if last.path == ():
            column = _flow_column(parts, last)
            for number, template in enumerate(made):
                body = json.dumps(
                    _object_of(template),
                    indent=None if column is None else _step(last.text, column),
                    ensure_ascii=False,
                )
                lead = ", " if column is None else "," + parts.newline + " " * column
                body = body.replace("\n", parts.newline + " " * (column or 0))
                parts.all.insert(at + 2 * number, FilePart(lead, 0, part.document))
                parts.all.insert(at + 2 * number + 1, FilePart(body, 0, part.document))
            return
        column = len(last.text) - len(last.text.lstrip(" "))
        offset = _offset(last.text)
        added = ""
        for template in made:
            lines = _lines(_object_of(template), column + 2, offset)
            lines[0] = " " * column + "- " + lines[0].lstrip(" ")
            body = parts.newline.join(lines)
            added += body + parts.newline if last.text.endswith("\n") else parts.newline + body
        parts.all.insert(at, FilePart(added, 0, part.document))

    def _drop_unused(self, parts: FileParts) -> None:
        """Take out templates and classes that no pod needs any more because all that did were moved back."""
        for part in parts.objects:
            kind, key = part.value.get("kind"), (_namespace(part.value), _name(part.value))
            if part.path == ("items",):
                self._drop_items(part)
                continue
            if kind == "DeviceClass":
                key = ("", key[1])
            elif kind != "ResourceClaimTemplate" or self.freed[key] < self.used[key]:
                continue
            if self.freed[key]:
                _take_out(parts, part)

    def _drop_items(self, part: FilePart) -> None:
        ed = Editor(part.text)
        for number in reversed(range(len(part.value["items"]))):
            item = part.value["items"][number]
            key = (_namespace(item), _name(item))
            if item.get("kind") == "ResourceClaimTemplate" and self.freed[key] and self.freed[key] >= self.used[key]:
                ed.remove(("items", number))
        part.text = ed.text


class _Results:
    """What the edits of one object came to."""

    def __init__(self) -> None:
        self.remarks: list[tuple[str, str, str, str, str]] = []
        self.moved: list[LabelRequirement] = []
        self.freed: list[tuple[str, str]] = []


# ---- objects


def _requests_gpus(template: dict[str, Any]) -> bool:
    """Whether a template has a request of a class that a device plugin may count."""
    for request in podspec.at(template, ("spec", "spec", "devices", "requests")) or ():
        for part in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(part, dict) and str(part.get("deviceClassName")) in GPU_CLASSES:
                return True
    return False


def values_of(part: FilePart) -> list[tuple[dict[str, Any], Path]]:
    """The objects in a part with their paths: one, or all items of a list that is not cut."""
    if part.path == ("items",):
        items = part.value.get("items") or ()
        return [(item, ("items", n)) for n, item in enumerate(items) if isinstance(item, dict)]
    return [(part.value, part.path or ())]


def _name(value: dict[str, Any]) -> str:
    return str(podspec.at(value, ("metadata", "name")) or podspec.at(value, ("metadata", "generateName")) or "").rstrip(
        "-"
    )


def _namespace(value: dict[str, Any]) -> str:
    return str(podspec.at(value, ("metadata", "namespace")) or "default")


def line_of(part: FilePart, text: str, path: Path, field: str) -> int:
    """The line of a field, or of the nearest above it that is written."""
    try:
        ed = Editor(text)
        node: Path = ()
        for step in [*path, *_steps(field)]:
            try:
                ed.node((*node, step))
            except CannotEdit:
                break
            node = (*node, step)
        return part.line + ed.line_of(node)
    except (CannotEdit, Broken):
        return part.line


def _steps(field: str) -> list[str | int]:
    steps: list[str | int] = []
    for part, index, key in re.findall(r"([^.\[\]]+)|\[(\d+)\]|\[([^\]]+)\]", field):
        steps.append(int(index) if index else part or key)
    return steps


def _object_of(template: _Template) -> dict[str, Any]:
    spec = copy.deepcopy(template.spec)
    if template.namespace == "":
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": template.name},
            "spec": spec,
        }
    metadata: dict[str, Any] = {"name": template.name}
    if template.namespace:
        metadata["namespace"] = template.namespace
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": spec},
    }


def _lines(value: dict[str, Any], column: int, offset: int) -> list[str]:
    lines: list[str] = []
    for key, part in value.items():
        lines += block_field(key, part, column, offset)
    return lines


def _offset(text: str) -> int:
    return Editor(text).sequence_offset


def _step(text: str, column: int) -> int:
    found = re.search(r"\n( +)\S", text)
    return max(len(found[1]) - column, 1) if found else 2


def _flow_column(parts: FileParts, last: FilePart) -> int | None:
    """The column of the items of a JSON list of several lines."""
    before = ""
    for part in parts.all:
        if part is last:
            break
        before += part.text
    line = before.rpartition("\n")[2]
    return len(line) if "\n" in before and not line.strip() else None


def _take_out(parts: FileParts, part: FilePart) -> None:
    """Without the object, and the separator or comma that stood before it."""
    at = parts.all.index(part)
    text, part.text, part.path = part.text, "", None
    if part.item is not None:
        if at and parts.all[at - 1].text.strip() == ",":
            parts.all[at - 1].text = ""
        _end_as(text, parts, at)
        return
    before = parts.all[at - 1] if at else None
    if before is not None and before.path is None:
        separator = before.text.startswith("---") or not before.text.strip()
        if separator:
            before.text = ""
    elif before is None and at + 1 < len(parts.all) and parts.all[at + 1].text.startswith("---"):
        parts.all[at + 1].text = ""
    _end_as(text, parts, at)


def _end_as(text: str, parts: FileParts, at: int) -> None:
    """If what was taken out had no line end, being the last, then what is the last now has none."""
    if not text.endswith("\n") and not parts.is_json:
        earlier = next((p for p in reversed(parts.all[:at]) if p.text), None)
        if earlier is not None:
            earlier.text = earlier.text.removesuffix("\n").removesuffix("\r")


def _class_selectors(kind: DeviceKind, selectors: tuple[str, ...]) -> list[str]:
    types = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig"}
    base = (
        f"device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == '{types[kind.device_class]}'"
    )
    return [base, *kind.selectors, *selectors]


def _kind_of_class(value: dict[str, Any]) -> tuple[DeviceKind, tuple[LabelRequirement, ...]] | None:
    texts = [str(podspec.at(entry, ("cel", "expression"))) for entry in podspec.at(value, ("spec", "selectors")) or ()]
    for device_class in ("gpu.nvidia.com", "mig.nvidia.com"):
        base = _class_selectors(DeviceKind("", "", device_class), ())[0]
        if texts and texts[0] == base:
            found = kind_of_request(device_class, texts[1:])
            if found is None:
                return None
            wanted = [labels.requirement(text) for text in found[1]]
            return (found[0], tuple(w for w in wanted if w)) if all(wanted) else None
    return None


def _short(expression: str) -> str:
    """A few letters of a selector for the name of a class."""
    found = labels.requirement(expression)
    text = "-".join(found.values) if found else "selected"
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
