"""Which devices does a node label of GPU Feature Discovery stand for? As a CEL selector, and back.

GFD describes the GPUs of a node in labels; without GFD, as in a cluster whose GPU Operator runs the DRA driver only
(GPUCluster), a nodeSelector on them matches no node. Names and values: NVIDIA/k8s-device-plugin, internal/lm.
Selectors hold the attributes that the GPU driver publishes for each device (`drivers/nvidia/devices.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PREFIX = "nvidia.com/"
DOMAIN = "gpu.nvidia.com"
_ATTRIBUTE = f"device.attributes['{DOMAIN}']"
_CAPACITY = f"device.capacity['{DOMAIN}']"

ARCHITECTURES = {
    "maxwell": "Maxwell",
    "pascal": "Pascal",
    "volta": "Volta",
    "turing": "Turing",
    "ampere": "Ampere",
    "ada-lovelace": "Ada Lovelace",
    "hopper": "Hopper",
    "blackwell": "Blackwell",
}
"""nvidia.com/gpu.family and the attribute `architecture`."""

KEPT = frozenset({"gpu.present", "gpu.clique"})
"""Labels that are there with the DRA driver too: the GPU Operator sets the first, the driver's side the second."""

_NUMBERS = {
    "gpu.compute.major": f"{_ATTRIBUTE}.cudaComputeCapability.major()",
    "gpu.compute.minor": f"{_ATTRIBUTE}.cudaComputeCapability.minor()",
    "cuda.driver-version.major": f"{_ATTRIBUTE}.driverVersion.major()",
    "cuda.driver-version.minor": f"{_ATTRIBUTE}.driverVersion.minor()",
    "cuda.driver.major": f"{_ATTRIBUTE}.driverVersion.major()",
    "cuda.driver.minor": f"{_ATTRIBUTE}.driverVersion.minor()",
    "cuda.runtime-version.major": f"{_ATTRIBUTE}.cudaDriverVersion.major()",
    "cuda.runtime-version.minor": f"{_ATTRIBUTE}.cudaDriverVersion.minor()",
    "cuda.runtime.major": f"{_ATTRIBUTE}.cudaDriverVersion.major()",
    "cuda.runtime.minor": f"{_ATTRIBUTE}.cudaDriverVersion.minor()",
}
_PRODUCT = f"{_ATTRIBUTE}.productName.replace(' ', '-')"
_ARCHITECTURE = f"{_ATTRIBUTE}.architecture"
_SUFFIX = re.compile(r"-SHARED$|-MIG-.*$")


class LabelRequirement(NamedTuple):
    """One line of a nodeSelector (operator "=") or of a node affinity (In, NotIn, Exists, DoesNotExist, Gt, Lt)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "=":
            return f"{self.key}={self.values[0]}"
        return f"{self.key} {self.operator} {', '.join(self.values)}".rstrip()


def is_gfd(key: str) -> bool:
    """Whether GFD writes this label, so that it is gone without GFD."""
    name = key.removeprefix(PREFIX)
    if name == key or name in KEPT:
        return False
    return name.startswith(("gpu.", "cuda.", "mig", "mps.", "vgpu.", "gfd.")) and not name.startswith("gpu.deploy.")


class Untranslatable(Exception):
    """A requirement that no attribute of a device stands for. str() says why."""


def selector(wanted: LabelRequirement) -> str:
    """The CEL expression that is true of the devices which the requirement is about. Raises Untranslatable."""
    name = wanted.key.removeprefix(PREFIX)
    if wanted.operator in ("Exists", "DoesNotExist"):
        raise Untranslatable("it asks whether the label exists, which devices do not know")
    if name == "gpu.product":
        if any(_SUFFIX.search(value) for value in wanted.values):
            raise Untranslatable("the suffixes -SHARED and -MIG-... say how the node shares its GPUs")
        return _texts(_PRODUCT, wanted)
    if name == "gpu.family":
        unknown = [value for value in wanted.values if value not in ARCHITECTURES]
        if unknown:
            raise Untranslatable(f"the family {unknown[0]} has no architecture in the driver's names")
        return _texts(_ARCHITECTURE, wanted._replace(values=tuple(ARCHITECTURES[v] for v in wanted.values)))
    if name == "gpu.memory":
        return _memory(wanted)
    if name in _NUMBERS:
        return _numbers(_NUMBERS[name], wanted)
    raise Untranslatable("it describes the node, not a device")


def _texts(subject: str, wanted: LabelRequirement) -> str:
    quoted = [_quoted(value) for value in wanted.values]
    if wanted.operator == "=":
        return f"{subject} == {quoted[0]}"
    if wanted.operator == "In":
        return f"{subject} in [{', '.join(quoted)}]"
    if wanted.operator == "NotIn":
        return f"!({subject} in [{', '.join(quoted)}])"
    raise Untranslatable(f"{wanted.operator} compares numbers")


def _quoted(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._ /+-]*", text):
        raise Untranslatable(f"{text} is no value of a label")
    return f"'{text}'"


def _whole(wanted: LabelRequirement) -> list[int]:
    if not all(re.fullmatch(r"[0-9]{1,15}", value) for value in wanted.values):
        raise Untranslatable("the value is not a whole number")
    return [int(value) for value in wanted.values]


def _numbers(subject: str, wanted: LabelRequirement) -> str:
    numbers = _whole(wanted)
    listed = ", ".join(map(str, numbers))
    match wanted.operator:
        case "=":
            return f"{subject} == {numbers[0]}"
        case "In":
            return f"{subject} in [{listed}]"
        case "NotIn":
            return f"!({subject} in [{listed}])"
        case "Gt":
            return f"{subject} > {numbers[0]}"
        case "Lt":
            return f"{subject} < {numbers[0]}"
    raise Untranslatable(f"unknown operator {wanted.operator}")


def _memory(wanted: LabelRequirement) -> str:
    """The label is in whole MiB, the capacity in bytes: of one MiB every byte counts."""
    numbers = _whole(wanted)
    subject = f"{_CAPACITY}.memory"

    def at_least(mib: int) -> str:
        return f"{subject}.compareTo(quantity('{mib}Mi')) >= 0"

    def below(mib: int) -> str:
        return f"{subject}.compareTo(quantity('{mib}Mi')) < 0"

    def exactly(mib: int) -> str:
        return f"{at_least(mib)} && {below(mib + 1)}"

    match wanted.operator:
        case "=":
            return exactly(numbers[0])
        case "In":
            return " || ".join(f"({exactly(number)})" for number in numbers)
        case "NotIn":
            return "!(" + " || ".join(f"({exactly(number)})" for number in numbers) + ")"
        case "Gt":
            return at_least(numbers[0] + 1)
        case "Lt":
            return below(numbers[0])
    raise Untranslatable(f"unknown operator {wanted.operator}")


# ---- back

_LISTED = re.compile(r"'([^']*)'|([0-9]+)")
_FAMILIES = {value: key for key, value in ARCHITECTURES.items()}
_SUBJECTS = [(_PRODUCT, "gpu.product"), (_ARCHITECTURE, "gpu.family")] + [
    (subject, name) for name, subject in _NUMBERS.items()
]


def requirement(expression: str) -> LabelRequirement | None:
    """The requirement whose selector this is; None if there is none, or not exactly."""
    for made in _candidates(expression.strip()):
        try:
            if selector(made) == expression.strip():
                return made
        except Untranslatable:
            continue
    return None


def _candidates(text: str) -> Iterable[LabelRequirement]:
    for subject, name in _SUBJECTS:
        for shape, operator in (
            (f"{subject} == ", "="),
            (f"{subject} in [", "In"),
            (f"!({subject} in [", "NotIn"),
            (f"{subject} > ", "Gt"),
            (f"{subject} < ", "Lt"),
        ):
            if text.startswith(shape):
                yield LabelRequirement(PREFIX + name, operator, _values(text[len(shape) :], name))
    sizes = re.findall(r"quantity\('([0-9]+)Mi'\)", text)
    if sizes:
        key = PREFIX + "gpu.memory"
        yield LabelRequirement(key, "=", (sizes[0],))
        yield LabelRequirement(key, "In", tuple(sizes[::2]))
        yield LabelRequirement(key, "NotIn", tuple(sizes[::2]))
        yield LabelRequirement(key, "Gt", (str(int(sizes[0]) - 1),))
        yield LabelRequirement(key, "Lt", (sizes[0],))


def _values(text: str, name: str) -> tuple[str, ...]:
    found = [quoted or number for quoted, number in _LISTED.findall(text)]
    return tuple(_FAMILIES.get(value, value) for value in found) if name == "gpu.family" else tuple(found)


def label_of_product(name: str) -> str:
    """nvidia.com/gpu.product of a product name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "", name.replace(" ", "-"))


def any_of(terms: Sequence[Sequence[LabelRequirement]]) -> str:
    """The selector of several node selector terms, of which one must hold. Raises Untranslatable."""
    return " || ".join("(" + " && ".join(f"({selector(wanted)})" for wanted in term) + ")" for term in terms)
