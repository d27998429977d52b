"""Where do the devices of a machine sit? A picture of its NUMA nodes, PCIe roots, GPUs and network adapters: a tree of
text, or SVG. Draws what a profile says; never adds to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from dragoman.profiles.machine import Profile

BOX_W, BOX_H, GAP, HEAD = 190, 44, 8, 24
"""Sizes of the SVG in pixels: of a device, between boxes, of a heading."""


class PciRoot(NamedTuple):
    """A PCIe root, "" where it is unknown, with (kind, name, detail) of its devices."""

    name: str
    devices: tuple[tuple[str, str, str], ...]


class NumaNode(NamedTuple):
    """A NUMA node, None where it is unknown."""

    number: int | None
    roots: tuple[PciRoot, ...]


def topology(profile: Profile) -> tuple[NumaNode, ...]:
    """The devices of a machine by NUMA node and PCIe root, in the order of the profile."""
    found: dict[int | None, dict[str, list[tuple[str, str, str]]]] = {}
    for index, gpu in enumerate(profile.gpus):
        device = ("GPU", f"GPU {index}", f"{profile.model_of(gpu)} {gpu.bus_id}".strip())
        found.setdefault(gpu.numa, {}).setdefault(gpu.pcie_root, []).append(device)
    for nic in profile.nics:
        device = (
            "NIC",
            nic.rdma_device or nic.if_name or nic.bus_id,
            f"{nic.kind or profile.nic} {nic.bus_id}".strip(),
        )
        found.setdefault(nic.numa, {}).setdefault(nic.pcie_root, []).append(device)
    ordered = sorted(found.items(), key=lambda entry: (entry[0] is None, entry[0] or 0))
    return tuple(NumaNode(n, tuple(PciRoot(r, tuple(d)) for r, d in sorted(roots.items()))) for n, roots in ordered)


def links(profile: Profile) -> str:
    """NVLink in a line, "" without any."""
    parts = [f"{profile.fabric.gpu_links} between all GPUs"] if profile.fabric.gpu_links else []
    if profile.rack and profile.fabric.clique:
        parts.append(f"one domain over {profile.rack.trays} nodes, clique {profile.fabric.clique}")
    return f"NVLink: {', '.join(parts)}" if parts else ""


def lines(profile: Profile) -> Iterator[str]:
    """The tree."""
    yield profile.name
    nodes = topology(profile)
    blocks = [(_numa(node), [(_root(root), root.devices) for root in node.roots]) for node in nodes]
    end = links(profile)
    for i, (title, roots) in enumerate(blocks):
        last = i == len(blocks) - 1 and not end
        yield f"{_turn(last)}{title}"
        for j, (name, devices) in enumerate(roots):
            yield f"{_line(last)}{_turn(j == len(roots) - 1)}{name}"
            for k, (_, device, detail) in enumerate(devices):
                before = f"{_line(last)}{_line(j == len(roots) - 1)}"
                yield f"{before}{_turn(k == len(devices) - 1)}{device}  {detail}"
    if end:
        yield f"{_turn(True)}{end}"


def svg(profile: Profile) -> str:
    """The same as SVG, each NUMA node a column."""
    parts: list[str] = []
    deepest, left = 0, GAP
    for node in topology(profile):
        top = HEAD + 2 * GAP
        inside: list[str] = []
        for root in node.roots:
            high = HEAD + len(root.devices) * (BOX_H + GAP)
            inside.append(_rect(left + GAP, top + HEAD, BOX_W + 2 * GAP, high, "#888", "none", dashed=True))
            inside.append(_text(left + 2 * GAP, top + HEAD + 16, _root(root), 12))
            for k, (kind, name, detail) in enumerate(root.devices):
                y = top + 2 * HEAD + k * (BOX_H + GAP)
                inside.append(_rect(left + 2 * GAP, y, BOX_W, BOX_H, "#333", "#d9f0e1" if kind == "GPU" else "#dbe7f5"))
                inside.append(_text(left + 3 * GAP, y + 18, name, 13, bold=True))
                inside.append(_text(left + 3 * GAP, y + 35, detail, 9))
            top += high + GAP
        wide, high = BOX_W + 4 * GAP, top - GAP
        parts.append(_rect(left, HEAD + GAP, wide, high, "#333", "#f6f7f9"))
        parts.append(_text(left + GAP, HEAD + GAP + 18, _numa(node), 13, bold=True))
        parts += inside
        deepest, left = max(deepest, HEAD + GAP + high), left + wide + GAP
    title = ": ".join(filter(None, (profile.name, links(profile))))
    width, height = max(left, 12 * len(title) // 2 + 4 * GAP), deepest + GAP
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
    head = f'{start} font-family="sans-serif"><title>{escape(title)}</title>'
    return "\n".join([head, _text(GAP, 20, title, 14, bold=True), *parts, "</svg>"])


def _numa(node: NumaNode) -> str:
    return "NUMA node unknown" if node.number is None else f"NUMA node {node.number}"


def _root(root: PciRoot) -> str:
    return f"PCIe root {root.name or 'unknown'}"


def _turn(last: object) -> str:
    return "└── " if last else "├── "


def _line(last: object) -> str:
    return "    " if last else "│   "


def _rect(x: int, y: int, wide: int, high: int, line: str, fill: str, *, dashed: bool = False) -> str:
    more = ' stroke-dasharray="3 3"' if dashed else ""
    place = f'x="{x}" y="{y}" width="{wide}" height="{high}" rx="5"'
    return f'<rect {place} fill="{fill}" stroke="{line}"{more}/>'


def _text(x: int, y: int, text: str, size: int, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{weight}>{escape(text)}</text>'
