"""What does the machine say about its GPUs outside NVML? PCI places, the driver's files, capability devices, VFIO.

Reads and writes below a root folder, `/` really. It never talks to NVML and knows no claims.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dragoman.drivers.nvidia.hardware import DriverFiles, Function, PciDriver
from dragoman.errors import Denied, Retry

LIBRARY_FOLDERS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib")
BINARIES = (
    "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
    "nvidia-imex", "nvidia-imex-ctl",
)  # fmt: skip
SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
HOOKS = ("usr/bin/nvidia-cdi-hook", "usr/local/nvidia/toolkit/nvidia-cdi-hook")
VENDOR = "0x10de"
PCI_NAMES = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")
_BAR = re.compile(r"0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)")


class Host:
    """The machine below `root`; driver_root holds the driver's files as this process sees them."""

    def __init__(self, root: Path = Path("/"), driver_root: Path = Path("/")) -> None:
        self.root = root
        self.driver_root = driver_root

    # ---- PCI

    def _device(self, bus_id: str) -> Path:
        return self.root / "sys/bus/pci/devices" / bus_id

    def pcie_root(self, bus_id: str) -> str:
        """`pci0000:15`, the first folder below /sys/devices on the way to the device; empty if unknown."""
        path = os.path.realpath(self._device(bus_id))
        _, _, below = path.partition("/sys/devices/")
        first = below.partition("/")[0]
        return first if first.startswith("pci") else ""

    def numa(self, bus_id: str) -> int | None:
        """The NUMA node of a PCI function; None if unknown."""
        text = _text(self._device(bus_id) / "numa_node")
        return int(text) if text.isdecimal() else None

    def drm_nodes(self, bus_id: str) -> tuple[str, ...]:
        """Its nodes in /dev/dri."""
        folder = self._device(bus_id) / "drm"
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        return tuple(f"/dev/dri/{name}" for name in names if name.startswith(("card", "renderD")))

    # ---- the driver's files

    def driver_files(self, version: str) -> DriverFiles:
        """What containers need, as paths below the driver root."""
        libraries: dict[str, str] = {}
        for folder in LIBRARY_FOLDERS:
            for path in sorted((self.driver_root / folder).glob(f"*.so.{version}")):
                libraries.setdefault(path.name, self._inside(path))
            for path in sorted((self.driver_root / folder / "vdpau").glob(f"*.so.{version}")):
                libraries.setdefault(path.name, self._inside(path))
        binaries = [path for name in BINARIES if (path := self.driver_root / "usr/bin" / name).exists()]
        firmware = sorted((self.driver_root / "lib/firmware/nvidia" / version).glob("gsp*.bin"))
        sockets = [path for name in SOCKETS if (path := self.driver_root / name).exists()]
        hook = next((path for name in HOOKS if (path := self.root / name).exists()), None)
        return DriverFiles(
            libraries=tuple(libraries.values()),
            binaries=tuple(map(self._inside, binaries)),
            firmware=tuple(map(self._inside, firmware)),
            sockets=tuple(map(self._inside, sockets)),
            hook=f"/{hook.relative_to(self.root)}" if hook else "",
        )

    def _inside(self, path: Path) -> str:
        return f"/{path.relative_to(self.driver_root)}"

    def smi(self) -> str:
        """The path of nvidia-smi. Raises Denied if there is none."""
        path = self.driver_root / "usr/bin/nvidia-smi"
        if not path.exists():
            raise Denied(f"{path} is not there: the time-slice cannot be set")
        return str(path)

    def cap_minors(self, minor: int, gi: int, ci: int) -> tuple[int, int]:
        """Minors of the capability devices, from the kernel's table. Raises Retry when it does not list them."""
        wanted = (f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access")
        table = dict(_pairs(_text(self.root / "proc/driver/nvidia-caps/mig-minors").splitlines()))
        missing = [name for name in wanted if name not in table]
        if missing:
            raise Retry(f"the kernel lists no capability device for {missing[0]}")
        return int(table[wanted[0]]), int(table[wanted[1]])

    # ---- passthrough

    def has_iommu(self) -> bool:
        """Whether the kernel has IOMMU groups."""
        folder = self.root / "sys/kernel/iommu_groups"
        return folder.is_dir() and any(folder.iterdir())

    def has_iommufd(self) -> bool:
        """Whether /dev/iommu exists."""
        return (self.root / "dev/iommu").exists()

    def functions(self) -> tuple[Function, ...]:
        """NVIDIA's display and 3D controllers, in order of their addresses."""
        folder = self.root / "sys/bus/pci/devices"
        found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        gpus = [bus_id for bus_id in found if self._is_gpu(bus_id)]
        return tuple(self._function(index, bus_id) for index, bus_id in enumerate(gpus))

    def _is_gpu(self, bus_id: str) -> bool:
        device = self._device(bus_id)
        return _text(device / "vendor") == VENDOR and _text(device / "class").startswith(("0x0300", "0x0302"))

    def _function(self, index: int, bus_id: str) -> Function:
        device = self._device(bus_id)
        number = _text(device / "device")
        group = os.path.realpath(device / "iommu_group").rpartition("/")[2]
        vfio = sorted(path.name for path in (device / "vfio-dev").iterdir()) if (device / "vfio-dev").is_dir() else []
        return Function(
            index=index,
            pci_bus_id=bus_id,
            device_id=number,
            product=self._pci_name(number),
            addressable_bytes=_addressable(_text(device / "resource").splitlines()),
            pcie_root=self.pcie_root(bus_id),
            numa=self.numa(bus_id),
            iommu_group=int(group) if group.isdecimal() else 0,
            vfio_index=int(vfio[0].removeprefix("vfio")) if vfio else 0,
            driver=self._driver(bus_id),
        )

    def _driver(self, bus_id: str) -> str:
        link = self._device(bus_id) / "driver"
        return os.path.realpath(link).rpartition("/")[2] if link.is_symlink() else ""

    def _pci_name(self, device: str) -> str:
        for name in PCI_NAMES:
            inside = False
            for line in _text(self.root / name).splitlines():
                if not line.startswith(("\t", "#")):
                    inside = line.startswith("10de ")
                elif inside and line.startswith(f"\t{device.removeprefix('0x')} "):
                    return line.strip().partition("  ")[2]
        return f"NVIDIA device {device}"

    def bind(self, bus_id: str, driver: PciDriver, users: Sequence[str]) -> None:
        """Give a function to a driver; users: paths that must not be open. Raises Retry and Denied."""
        current = self._driver(bus_id)
        if current == driver:
            return
        if current not in ("nvidia", "vfio-pci", ""):
            raise Denied(f"PCI function {bus_id} belongs to driver {current}, not to nvidia")
        if int(_text(self._device(bus_id) / "sriov_numvfs") or 0):
            raise Retry(f"PCI function {bus_id} has virtual functions")
        for path in users:
            if (holder := self._open_in(path)) is not None:
                raise Retry(f"PCI function {bus_id} is in use: process {holder} has {path} open")
        try:
            (self._device(bus_id) / "driver_override").write_text(driver)
            if current:
                (self.root / "sys/bus/pci/drivers" / current / "unbind").write_text(bus_id)
            (self.root / "sys/bus/pci/drivers_probe").write_text(bus_id)
        except OSError as error:
            raise Denied(f"PCI function {bus_id} cannot be given to {driver}: {error}") from error

    def _open_in(self, wanted: str) -> str | None:
        for folder in (self.root / "proc").glob("[0-9]*/fd"):
            try:
                if any(str(link.readlink()) == wanted for link in folder.iterdir()):
                    return folder.parent.name
            except OSError:
                continue  # it has just ended, or is not ours to see
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, number = line.rpartition(" ")
        if name and number.isdecimal():
            yield name, number


def _addressable(lines: Sequence[str]) -> int:
    """The size of the largest memory region, from sysfs' `resource`."""
    sizes = [int(m.group(2), 16) - int(m.group(1), 16) + 1 for line in lines if (m := _BAR.match(line))]
    return max(sizes, default=0)
