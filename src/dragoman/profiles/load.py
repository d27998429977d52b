"""Which profiles are there, and is a file of profiles right?

    catalog = Catalog.packaged().adding(Path("mine.yaml"))
    catalog.profile("dgx-h100")

Reads YAML strictly: an unknown field, a wrong type or an impossible machine is Invalid with file, line and field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
import yaml

from dragoman.errors import Invalid
from dragoman.profiles.machine import EXAMPLE, GpuModel, GpuSlot, MigGeometry, MigTable, NicModel, NicSlot, Profile
from dragoman.profiles.mig import InstanceProfile, PlacedInstance, misfit, parse_instance, shapes_of
from dragoman.values.names import label_key, label_value
from dragoman.values.quantity import Quantity

T = TypeVar("T")
GateRule: TypeAlias = Callable[[Mapping[str, bool]], object]
"""Judges a profile's feature gates, which belong to the driver. Raises Invalid."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_STEP = re.compile(r"\.([A-Za-z_]+)|\[(\d+)\]|\[\.\.\.\]")
_VALUES_MAX = 100_000
_DEPTH_MAX = 50
_NOT_INHERITED = ("name", "summary", "aliases", "source")


class Source:
    """One YAML document with the lines of its parts, to say where something is wrong."""

    def __init__(self, file: str, node: yaml.Node) -> None:
        self.file = file
        self.node = node
        self.value: Any = _Plain(file).of(node)

    def wrong(self, path: str, what: str) -> Invalid:
        """The error for a field, `$.gpus[0].numa` or `gpus[0].numa`."""
        path = path.removeprefix("$").removeprefix(".")
        node = self.node
        for (
            key,
            index,
        ) in ((m.group(1), m.group(2)) for m in _STEP.finditer("." + path if path[:1] != "[" else path)):
            below = _child(node, key, index)
            if below is None:
                break
            node = below
        where = f"{self.file}, line {node.start_mark.line + 1}"
        return Invalid(f"{where}, field {path}" if path else where, what)

    def typed(self, kind: type[T], value: Any = None) -> T:
        """The value (the document's, or one made from it) as that type. Raises Invalid."""
        try:
            return msgspec.convert(self.value if value is None else value, kind)
        except msgspec.ValidationError as error:
            what, _, path = str(error).partition(" - at `")
            path = path.removesuffix("`")
            if (unknown := re.search(r"unknown field `(\w+)`", what)) is not None:
                path = f"{path}.{unknown.group(1)}"
                what = f"unknown field{_hint(unknown.group(1), kind)}"
            elif (missing := re.search(r"missing required field `(\w+)`", what)) is not None:
                what = f"field {missing.group(1)} is missing"
            raise self.wrong(path or "$", what[:1].lower() + what[1:]) from None


def _hint(name: str, kind: Any) -> str:
    names = {field.encode_name for part in _parts(kind) for field in msgspec.structs.fields(part)}
    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(sorted(_own(kind)))}"


def _own(kind: Any) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _parts(kind: Any) -> Iterator[Any]:
    yield kind
    if kind is Profile:
        yield from (GpuSlot, NicSlot)


def _child(node: yaml.Node, key: str | None, index: str | None) -> yaml.Node | None:
    if key is not None and isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    if index is not None and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
        found: yaml.Node = node.value[int(index)]
        return found
    return None


class _Plain:
    """The values of YAML's nodes, counted: aliases count each time, since a text can multiply itself by them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.values = 0

    def of(self, node: yaml.Node, depth: int = 0) -> Any:
        self.values += 1
        if self.values > _VALUES_MAX or depth > _DEPTH_MAX:
            what = (
                f"more than {_VALUES_MAX} values" if depth <= _DEPTH_MAX else f"nested deeper than {_DEPTH_MAX} levels"
            )
            raise Invalid(f"{self.file}, line {node.start_mark.line + 1}", what)
        match node:
            case yaml.MappingNode():
                made: dict[Any, Any] = {}
                for key, value in node.value:
                    if key.value in made:
                        line = key.start_mark.line + 1
                        raise Invalid(f"{self.file}, line {line}, field {key.value}", "is defined twice")
                    made[str(key.value)] = self.of(value, depth + 1)
                return made
            case yaml.SequenceNode():
                return [self.of(item, depth + 1) for item in node.value]
        if node.tag == "tag:yaml.org,2002:str":
            return node.value
        try:  # a loader keeps what it has constructed, so a new one is made; most values are texts and need none
            return yaml.SafeLoader("").construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            what = getattr(error, "problem", None) or f"{node.value[:40]!r} is not a value of YAML"
            raise Invalid(f"{self.file}, line {node.start_mark.line + 1}", what) from None


def documents(file: str, text: str) -> list[Source]:
    """The documents of a YAML text. Raises Invalid with file and line."""
    try:
        nodes = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}, line {mark.line + 1}" if mark else file
        raise Invalid(where, f"is not YAML: {getattr(error, 'problem', None) or error}") from None
    return [Source(file, node) for node in nodes if node is not None]


class Catalog:
    """Profiles and the models they name. Never changes; `adding` makes another."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        gpus: Mapping[str, GpuModel],
        nics: Mapping[str, NicModel],
        geometries: Mapping[str, MigGeometry],
        mig_tables: Mapping[str, MigTable],
        origins: Mapping[str, str] | None = None,
    ) -> None:
        self.profiles = dict(profiles)
        self.gpus = dict(gpus)
        self.nics = dict(nics)
        self.geometries = dict(geometries)
        self.mig_tables = dict(mig_tables)
        self.origins = dict(origins or {})
        self._shapes: dict[tuple[str, int], tuple[InstanceProfile, ...]] = {}
        self._aliases = {alias: name for name, made in self.profiles.items() for alias in made.aliases}

    @classmethod
    @lru_cache(maxsize=1)
    def packaged(cls) -> Self:
        """What comes with dragoman; read once a process."""
        root = resources.files("dragoman.profiles")

        def read(name: str) -> list[Source]:
            return documents(name, (root / name).read_text(encoding="utf-8"))

        (gpus,), (nics,), (mig,) = read("gpus.yaml"), read("nics.yaml"), read("mig.yaml")
        made = cls(
            {EXAMPLE.name: EXAMPLE},
            {model.name: model for model in gpus.typed(tuple[GpuModel, ...])},
            {model.name: model for model in nics.typed(tuple[NicModel, ...])},
            mig.typed(dict[str, MigGeometry], mig.value["geometries"]),
            mig.typed(dict[str, MigTable], mig.value["tables"]),
        )
        for file in sorted(path.name for path in (root / "machines").iterdir() if path.name.endswith(".yaml")):
            made = made._with(read(f"machines/{file}"), "packaged")
        return made

    @classmethod
    def example(cls) -> Self:
        """The profile `example` alone; reads no file."""
        return cls({EXAMPLE.name: EXAMPLE}, {}, {}, {}, {})

    def adding(self, file: Path, gates: GateRule | None = None) -> Self:
        """This catalog and the profiles of a file. Raises Invalid with file, line and field."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(str(file), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        found = documents(str(file), text)
        if not found:
            raise Invalid(str(file), "holds no profile")
        return self._with(found, str(file), gates)

    def profile(self, name: str) -> Profile | None:
        """The profile of that name or alias."""
        return self.profiles.get(self._aliases.get(name, name))

    def named(self, wanted: str, where: str) -> Profile:
        """The profile of that name or alias. Raises Invalid for `where` with those that look like it."""
        found = self.profile(wanted)
        if found is None:
            near = get_close_matches(wanted, self.names(), 3, 0.4)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise Invalid(where, f"no such profile; {hint}`dragoman profiles` lists them")
        return found

    def names(self) -> list[str]:
        """All names and aliases."""
        return sorted([*self.profiles, *self._aliases])

    def gpu_models(self, profile: Profile) -> list[GpuModel]:
        """The model of each GPU, in order."""
        return [self.gpus[profile.model_of(slot)] for slot in profile.gpus]

    def mig_shapes(self, model: GpuModel) -> tuple[InstanceProfile, ...]:
        """The GPU instance profiles of a model; none without MIG."""
        table = self.mig_tables.get(model.mig)
        if table is None:
            return ()
        key = (model.mig, model.memory_mib)
        if key not in self._shapes:
            self._shapes[key] = shapes_of(self.geometries[table.geometry], table, model.memory_mib)
        return self._shapes[key]

    def _with(self, sources: list[Source], origin: str, gates: GateRule | None = None) -> Self:
        profiles, gpus, origins = dict(self.profiles), dict(self.gpus), dict(self.origins)
        raw = {name: msgspec.to_builtins(made) for name, made in profiles.items()}
        alias_of = {alias: name for name, made in profiles.items() for alias in made.aliases}
        for source in sources:
            if not isinstance(source.value, dict):
                raise source.wrong("", "a profile is a mapping with at least `name` and `gpus`")
            value = dict(source.value)
            self._add_models(source, value, gpus)
            value = self._inherited(source, value, raw, alias_of)
            made = source.typed(Profile, value)
            for name in (made.name, *made.aliases):
                if name in profiles or name in alias_of:
                    raise source.wrong("name", f"profile {name} already exists")
            self._check(source, made, gpus)
            if gates is not None:
                _check_gates(source, made, gates)
            profiles[made.name] = made
            raw[made.name] = value
            origins[made.name] = origin
            alias_of |= dict.fromkeys(made.aliases, made.name)
        return type(self)(profiles, gpus, self.nics, self.geometries, self.mig_tables, origins)

    def _add_models(self, source: Source, value: dict[str, Any], gpus: dict[str, GpuModel]) -> None:
        """Models that a profile defines itself, under `gpuModels`."""
        if "gpuModels" not in value:
            return
        wrapped = source.typed(dict[str, list[Any]], {"gpuModels": value.pop("gpuModels")})
        for index, _ in enumerate(wrapped["gpuModels"]):
            try:
                model = msgspec.convert(wrapped["gpuModels"][index], GpuModel)
            except msgspec.ValidationError as error:
                what, _, path = str(error).partition(" - at `$")
                raise source.wrong(f"gpuModels[{index}]{path.removesuffix('`')}", what[:1].lower() + what[1:]) from None
            if model.mig and model.mig not in self.mig_tables:
                tables = ", ".join(sorted(self.mig_tables))
                raise source.wrong(f"gpuModels[{index}].mig", f"no MIG table {model.mig!r}; there are: {tables}")
            if model.memory_mib < 1:
                raise source.wrong(f"gpuModels[{index}].memoryMiB", f"must be at least 1, got {model.memory_mib}")
            gpus[model.name] = model

    def _inherited(
        self, source: Source, value: dict[str, Any], raw: dict[str, Any], aliases: dict[str, str]
    ) -> dict[str, Any]:
        base = value.pop("base", None)
        if base is None:
            return value
        above = raw.get(aliases.get(base, base)) if isinstance(base, str) else None
        if above is None:
            raise source.wrong("base", f"no profile {base!r} before this one{_near(str(base), raw)}")
        return {key: item for key, item in above.items() if key not in _NOT_INHERITED} | value

    def _check(self, source: Source, made: Profile, gpus: Mapping[str, GpuModel]) -> None:
        if not made.name:
            raise source.wrong("name", "must not be empty")
        buses: set[str] = set()
        for index, slot in enumerate(made.gpus):
            _check_place(source, f"gpus[{index}]", slot, buses)
        for index, adapter in enumerate(made.nics):
            _check_place(source, f"nics[{index}]", adapter, buses)
        for index, gpu in enumerate(made.gpus):
            self._check_gpu(source, index, made, gpu, gpus)
        for index, nic in enumerate(made.nics):
            model = nic.kind or made.nic
            if model not in self.nics:
                where = f"nics[{index}].kind" if nic.kind or not made.nic else "nic"
                raise source.wrong(where, f"no kind of adapter {model!r}; there are: {', '.join(sorted(self.nics))}")
            if not nic.rdma_device and not nic.if_name:
                raise source.wrong(f"nics[{index}]", "must have rdmaDevice, ifName or both")
        modules = {gpu.module_id for gpu in made.gpus}
        for index, partition in enumerate(made.fabric.partitions):
            if orphan := sorted(set(partition.modules) - modules):
                raise source.wrong(f"fabric.partitions[{index}].modules", f"no GPU has the module id {orphan[0]}")
        _check_node(source, made)
        if made.rack and made.rack.trays < 1:
            raise source.wrong("rack.trays", f"must be at least 1, got {made.rack.trays}")

    def _check_gpu(
        self, source: Source, index: int, made: Profile, slot: GpuSlot, gpus: Mapping[str, GpuModel]
    ) -> None:
        name = made.model_of(slot)
        where = f"gpus[{index}].model" if slot.model or not made.gpu else "gpu"
        if name not in gpus:
            raise source.wrong(where, f"no GPU model {name!r}{_near(name, gpus)}")
        setup = made.mig_of(slot)
        field = f"gpus[{index}].mig" if slot.mig is not None else "mig"
        if setup.layout and not setup.enabled:
            raise source.wrong(f"{field}.layout", "needs `enabled: true`")
        if not setup.enabled:
            return
        shapes = self.mig_shapes(gpus[name])
        if not shapes:
            if slot.mig is not None:
                raise source.wrong(field, f"{name} has no MIG")
            return  # a machine's setting is for those of its GPUs that have MIG
        placed: list[PlacedInstance] = []
        for at, text in enumerate(setup.layout):
            try:
                placed.append(parse_instance(text, shapes))
            except ValueError as error:
                raise source.wrong(f"{field}.layout[{at}]", str(error)) from None
            if reason := misfit(placed):
                raise source.wrong(f"{field}.layout[{at}]", reason)


def _check_node(source: Source, made: Profile) -> None:
    if made.node.cpu < 1:
        raise source.wrong("node.cpu", f"must be at least 1, got {made.node.cpu}")
    try:
        memory = Quantity.parse(made.node.memory)
    except ValueError as error:
        raise source.wrong("node.memory", str(error)) from None
    if memory.nanos <= 0:
        raise source.wrong("node.memory", f"must be more than 0, got {memory}")
    for key, value in made.labels.items():
        if why := label_key(key):
            raise source.wrong("labels", f"{key!r}: {why}")
        if why := label_value(value):
            raise source.wrong(f"labels.{key}", f"{value!r}: {why}")


def _check_gates(source: Source, made: Profile, gates: GateRule) -> None:
    try:
        gates(made.feature_gates)
    except Invalid as error:
        raise source.wrong("featureGates", error.what) from None


def _check_place(source: Source, where: str, slot: GpuSlot | NicSlot, buses: set[str]) -> None:
    if not _BUS.fullmatch(slot.bus_id):
        raise source.wrong(f"{where}.busId", f'must look like "0000:1b:00.0", lower case, got {slot.bus_id!r}')
    if slot.bus_id in buses:
        raise source.wrong(f"{where}.busId", f"{slot.bus_id} is defined twice")
    buses.add(slot.bus_id)
    if slot.pcie_root and not _ROOT.fullmatch(slot.pcie_root):
        raise source.wrong(f"{where}.pcieRoot", f'must look like "pci0000:15", got {slot.pcie_root!r}')
    if slot.numa is not None and slot.numa < 0:
        raise source.wrong(f"{where}.numa", "must not be negative; leave it out where it is unknown")


def _near(name: str, names: Mapping[str, Any]) -> str:
    near = get_close_matches(name, list(names), 3, 0.4)
    return f"; did you mean {' or '.join(near)}?" if near else ""
