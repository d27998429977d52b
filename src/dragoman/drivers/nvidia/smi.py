"""What do `nvidia-smi` and `nvidia-ctk` show in a simulated container? Exactly its devices, in the shape of the real
tools.

Rows, columns, field names and their order are those of the public output of nvidia-smi 580; readings that a simulation
does not have (temperature, power, load) are those of an idle GPU. Nothing of this machine is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape

import msgspec

from dragoman.drivers.nvidia.classes import GPU as DRIVER
from dragoman.drivers.nvidia.devices import mig_name
from dragoman.drivers.nvidia.driver import NvidiaDriver
from dragoman.drivers.nvidia.hardware import Gpu, GpuInstance, GpuUnreachable
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.nvidia.topology import matrix
from dragoman.errors import Retry
from dragoman.kubelet.containers import Tool
from dragoman.kubelet.shell.language import ProgramCall, ShellProgram
from dragoman.node.driver import PreparedDevice
from dragoman.profiles.mig import MIB, PlacedInstance

MISUSE, LOST = 2, 15
IDLE_C, IDLE_SHARE = 31, 10
"""Temperature of an idle GPU, and the part of its power limit that it draws."""
NOTE = "Simulated by Dragoman: no GPU of this machine was asked."
_WRONG = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"


class Shown(msgspec.Struct, frozen=True):
    """A GPU that a container sees, and which of its instances."""

    index: int
    gpu: Gpu
    instances: tuple[GpuInstance, ...]
    power_w: int
    lost: bool = False

    @property
    def memory_mib(self) -> int:
        """Of the whole GPU."""
        return (self.gpu.memory_bytes or 0) // MIB

    @property
    def draw_w(self) -> float:
        """What it draws, idle."""
        return self.power_w / IDLE_SHARE


def tools(driver: NvidiaDriver) -> dict[str, Tool]:
    """The programs that this driver's devices bring into a container."""
    hardware = driver.hardware
    if not isinstance(hardware, SimulatedHardware):
        return {}

    def smi(devices: Sequence[tuple[str, PreparedDevice]]) -> ShellProgram | None:
        own = [device for name, device in devices if name == DRIVER]
        return program(hardware, lambda: visible(hardware, own)) if own else None

    def ctk(devices: Sequence[tuple[str, PreparedDevice]]) -> ShellProgram | None:
        own = [device for name, device in devices if name == DRIVER]
        return (lambda call: _ctk(call, own)) if own else None

    return {"nvidia-smi": smi, "nvidia-ctk": ctk}


def program(hardware: SimulatedHardware, shown: Callable[[], list[Shown]]) -> ShellProgram:
    """nvidia-smi for a container that sees these GPUs."""
    return lambda call: _smi(call, hardware, shown())


def visible(hardware: SimulatedHardware, devices: Sequence[PreparedDevice]) -> list[Shown]:
    """The GPUs of those devices, numbered again as a container counts them."""
    names = {device.device for device in devices}
    found: list[Shown] = []
    for gpu in hardware.gpus():
        lost = False
        try:
            instances = hardware.instances(gpu.uuid)
        except (GpuUnreachable, Retry):
            instances, lost = (), True
        whole = f"gpu-{gpu.minor}" in names
        seen = tuple(i for i in instances if whole or mig_name(gpu, PlacedInstance(i.shape, i.start)) in names)
        if whole or seen or (lost and any(name.startswith(f"gpu-{gpu.minor}-") for name in names)):
            found.append(Shown(len(found), gpu, seen, hardware.power_w(gpu.index), lost))
    return found


def _ctk(call: ProgramCall, devices: Sequence[PreparedDevice]) -> int:
    if call.args[1:3] != ("cdi", "list"):
        return call.fail("only `nvidia-ctk cdi list` is simulated", MISUSE)
    names = sorted({cdi for device in devices for cdi in device.cdi_ids})
    call.errors.write(f'level=info msg="Found {len(names)} CDI devices"\n'.encode())
    call.say("".join(f"{name}\n" for name in names))
    return 0


def _smi(call: ProgramCall, hardware: SimulatedHardware, gpus: list[Shown]) -> int:
    words = list(call.args[1:])
    for flag in ("-i", "--id"):
        if flag in words:
            at = words.index(flag)
            wanted = words[at + 1 : at + 2]
            gpus = [g for g in gpus if wanted and wanted[0] in (str(g.index), g.gpu.uuid, g.gpu.pci_bus_id)]
            del words[at : at + 2]
            if not gpus:
                call.say("No devices were found\n")
                return 6
    if not gpus and words[:1] not in (["-L"], ["--list-gpus"], ["--version"], ["-h"], ["--help"]):
        call.say("No devices were found\n")
        return 6
    lost = [g for g in gpus if g.lost]
    if lost and words[:1] not in (["topo"],):
        bus = lost[0].gpu.pci_bus_id.upper()
        call.say(f"Unable to determine the device handle for GPU{lost[0].index}: {bus}: GPU is lost.  ")
        call.say("Reboot the system to recover this GPU\n")
        return LOST
    query = next((word for word in words if word.startswith("--query-gpu=")), "")
    if query:
        return _query(call, hardware, gpus, query.partition("=")[2], words)
    if any(word.startswith("--query-compute-apps=") for word in words):
        call.say("" if "noheader" in " ".join(words) else "pid, process_name, used_gpu_memory [MiB]\n")
        return 0
    match words:
        case []:
            call.say(_table(hardware, gpus, call.around.process.now))
        case ["-L"] | ["--list-gpus"]:
            call.say(_list(gpus))
        case ["topo", "-m"] | ["topo", "--matrix"]:
            call.say(matrix(hardware.profile, [g.gpu for g in gpus]))
        case ["mig", "-lgi"]:
            return _instances(call, gpus, _LGI)
        case ["mig", "-lci"]:
            return _instances(call, gpus, _LCI)
        case ["-q"] | ["--query"]:
            call.say(_detailed(hardware, gpus, call.around.process.now))
        case ["-q", "-x"] | ["-x", "-q"]:
            call.say(_xml(hardware, gpus, call.around.process.now))
        case ["--version"]:
            versions = hardware.versions()
            call.say(f"NVIDIA-SMI version  : {versions.driver}\nNVML version        : {versions.driver}\n")
            call.say(f"DRIVER version      : {versions.driver}\nCUDA Version        : {_cuda(hardware)}\n")
        case ["-h"] | ["--help"]:
            call.say("Simulated here: nvidia-smi, -L, -q, -q -x, --query-gpu=... --format=csv, topo -m, mig -lgi, ")
            call.say("mig -lci, -i, --version\n")
        case _:
            call.say(_WRONG)
            return MISUSE
    return 0


def _cuda(hardware: SimulatedHardware) -> str:
    cuda = hardware.versions().cuda
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


# ---- -L


def _list(gpus: Sequence[Shown]) -> str:
    lines: list[str] = [] if gpus else ["No devices found.\n"]
    for shown in gpus:
        lines.append(f"GPU {shown.index}: {shown.gpu.name} (UUID: {shown.gpu.uuid})\n")
        for number, instance in enumerate(shown.instances):
            lines.append(f"  MIG {instance.shape.name:<11} Device {number:>2}: (UUID: {instance.uuid})\n")
    return "".join(lines)


# ---- --query-gpu

_Field = Callable[[SimulatedHardware, Shown, int, float], str]
_UNITS = {"memory": "MiB", "utilization": "%", "power": "W", "clocks": "MHz"}
_FIELDS: dict[str, _Field] = {
    "timestamp": lambda h, g, n, now: datetime.fromtimestamp(now, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
    "index": lambda h, g, n, now: str(g.index),
    "count": lambda h, g, n, now: str(n),
    "name": lambda h, g, n, now: g.gpu.name,
    "uuid": lambda h, g, n, now: g.gpu.uuid,
    "serial": lambda h, g, n, now: "[N/A]",
    "driver_version": lambda h, g, n, now: h.versions().driver,
    "pci.bus_id": lambda h, g, n, now: _bus(g),
    "compute_cap": lambda h, g, n, now: g.gpu.compute_capability,
    "compute_mode": lambda h, g, n, now: _compute_mode(h, g),
    "persistence_mode": lambda h, g, n, now: "Enabled",
    "display_active": lambda h, g, n, now: "Disabled",
    "pstate": lambda h, g, n, now: "P0",
    "fan.speed": lambda h, g, n, now: "[N/A]",
    "mig.mode.current": lambda h, g, n, now: _mig_mode(g),
    "mig.mode.pending": lambda h, g, n, now: _mig_mode(g),
    "memory.total": lambda h, g, n, now: f"{g.memory_mib} MiB",
    "memory.reserved": lambda h, g, n, now: "0 MiB",
    "memory.used": lambda h, g, n, now: "0 MiB",
    "memory.free": lambda h, g, n, now: f"{g.memory_mib} MiB",
    "utilization.gpu": lambda h, g, n, now: "[N/A]" if g.gpu.mig_enabled else "0 %",
    "utilization.memory": lambda h, g, n, now: "[N/A]" if g.gpu.mig_enabled else "0 %",
    "temperature.gpu": lambda h, g, n, now: str(IDLE_C),
    "power.draw": lambda h, g, n, now: f"{g.draw_w:.2f} W",
    "power.limit": lambda h, g, n, now: f"{g.power_w:.2f} W",
    "ecc.mode.current": lambda h, g, n, now: "Enabled",
    "ecc.errors.uncorrected.volatile.total": lambda h, g, n, now: "0",
}
_SAME = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "power.draw.average": "power.draw",
    "power.draw.instant": "power.draw",
    "enforced.power.limit": "power.limit",
}


def _query(
    call: ProgramCall, hardware: SimulatedHardware, gpus: Sequence[Shown], text: str, words: Sequence[str]
) -> int:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if _SAME.get(name, name) not in _FIELDS:
            call.say(f'Field "{name}" is not a valid field to query.\n\n')
            return MISUSE
    format_ = next((word.partition("=")[2] for word in words if word.startswith("--format=")), "")
    options = format_.split(",")
    if options[0] != "csv":
        call.say("Option --query-gpu= requires --format=csv\n" if not format_ else _WRONG)
        return MISUSE
    plain = "nounits" in options
    if "noheader" not in options:
        call.say(", ".join(_header(name, plain=plain) for name in names) + "\n")
    now = call.around.process.now
    for shown in gpus:
        values = [_FIELDS[_SAME.get(name, name)](hardware, shown, len(gpus), now) for name in names]
        if plain:
            values = [
                value.rsplit(" ", 1)[0] if value.endswith((" MiB", " %", " W", " MHz")) else value for value in values
            ]
        call.say(", ".join(values) + "\n")
    return 0


def _header(name: str, *, plain: bool) -> str:
    unit = _UNITS.get(name.partition(".")[0], "")
    return f"{name} [{unit}]" if unit and not plain else name


def _bus(shown: Shown) -> str:
    """A bus id as the tool prints it: eight digits of domain, capitals."""
    domain, _, rest = shown.gpu.pci_bus_id.partition(":")
    return f"{domain.zfill(8)}:{rest}".upper()


def _mig_mode(shown: Shown) -> str:
    if not shown.gpu.mig_capable:
        return "[N/A]"
    return "Enabled" if shown.gpu.mig_enabled else "Disabled"


def _compute_mode(hardware: SimulatedHardware, shown: Shown) -> str:
    return "Exclusive_Process" if hardware.sharing_of(shown.gpu.uuid)[0] else "Default"


# ---- the table


def _table(hardware: SimulatedHardware, gpus: Sequence[Shown], now: float) -> str:
    driver = hardware.versions().driver
    when = datetime.fromtimestamp(now, UTC).strftime("%a %b %e %H:%M:%S %Y")
    lines = [
        f"{when}       ",
        "+" + "-" * 89 + "+",
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {_cuda(hardware):<8} |",
        "+-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for g in gpus:
        power = f"{g.draw_w:.0f}W / {g.power_w:>4}W"
        memory = f"0MiB / {g.memory_mib:>6}MiB"
        load = "N/A" if g.gpu.mig_enabled else "0%"
        mode = {"Default": "Default", "Exclusive_Process": "E. Process"}[_compute_mode(hardware, g)]
        lines += [
            f"| {g.index:>3}  {g.gpu.name:<29.29}  On  |   {_bus(g):<16} Off | {'0':>20} |",
            f"| N/A  {IDLE_C:>3}C    P0   {power:>21} | {memory:>22} | {load:>8}  {mode:>10} |",
            f"|                                         |                        | {_mig_mode(g).strip('[]'):>20} |",
            "+-----------------------------------------+------------------------+----------------------+",
        ]
    migs = [(g, number, i) for g in gpus for number, i in enumerate(g.instances)]
    if migs:
        lines += [
            "",
            "+" + "-" * 89 + "+",
            "| MIG devices:                                                                            |",
            "+------------------+----------------------------------+-----------+-----------------------+",
            "| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |",
            "|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |",
            "|                  |                                  |        ECC|                       |",
            "|==================+==================================+===========+=======================|",
        ]
        for g, number, i in migs:
            a = i.shape.amounts
            memory = f"0MiB / {a.memory_mib:>5}MiB"
            shared = f"{a.copy_engines:>2} {a.encoders:>3}  {a.decoders:>3}  {a.ofa_engines:>3}  {a.jpeg_engines:>3}"
            lines += [
                f"| {g.index:>3}  {i.gi:>2}  {i.ci:>2}  {number:>2}  | {memory:>32} | {a.multiprocessors:>3}     0 |"
                f" {shared:<21} |",
                "|                  |                 0MiB /     0MiB  |           |                       |",
                "+------------------+----------------------------------+-----------+-----------------------+",
            ]
    lines += [
        "",
        "+" + "-" * 89 + "+",
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
        "|  No running processes found                                                             |",
        "+" + "-" * 89 + "+",
        NOTE,
    ]
    return "\n".join(lines) + "\n"


# ---- mig

_LGI, _LCI = "GPU instances", "Compute instances"


def _instances(call: ProgramCall, gpus: Sequence[Shown], what: str) -> int:
    rows = [(g, i) for g in gpus for i in g.instances]
    if not rows:
        call.say(f"No {what} found: Not Found\n" if gpus else "No MIG-supported devices found.\n")
        return 6
    if what == _LGI:
        lines = [
            "+---------------------------------------------------------+",
            "| GPU instances:                                          |",
            "| GPU   Name               Profile  Instance   Placement  |",
            "|                            ID       ID       Start:Size |",
            "|=========================================================|",
        ]
        for g, i in rows:
            place = f"{i.start}:{i.shape.size}"
            lines.append(f"| {g.index:>3}  MIG {i.shape.name:<15} {i.shape.id:>5} {i.gi:>8} {place:>13}   |")
            lines.append("+---------------------------------------------------------+")
    else:
        lines = [
            "+--------------------------------------------------------------------+",
            "| Compute instances:                                                 |",
            "| GPU     GPU       Name             Profile   Instance   Placement  |",
            "|       Instance                       ID        ID       Start:Size |",
            "|         ID                                                         |",
            "|====================================================================|",
        ]
        for g, i in rows:
            place = f"0:{i.shape.compute}"
            name = f"MIG {i.shape.name}"
            lines.append(f"| {g.index:>3} {i.gi:>6}       {name:<17} {0:>5} {i.ci:>9} {place:>14}  |")
            lines.append("+--------------------------------------------------------------------+")
    call.say("\n".join(lines) + "\n")
    return 0


# ---- -q

_Tree = Sequence[tuple[str, str, "str | _Tree"]]


def _tree(hardware: SimulatedHardware, g: Shown) -> _Tree:
    """(label of -q, tag of -x, value or more) of a GPU."""
    migs: _Tree = [
        (
            "MIG Device",
            "mig_device",
            [
                ("Index", "index", str(number)),
                ("GPU Instance ID", "gpu_instance_id", str(i.gi)),
                ("Compute Instance ID", "compute_instance_id", str(i.ci)),
                ("MIG Device UUID", "uuid", i.uuid),
                ("FB Memory Usage", "fb_memory_usage", [("Total", "total", f"{i.shape.amounts.memory_mib} MiB")]),
            ],
        )
        for number, i in enumerate(g.instances)
    ]
    domain, bus, rest = _bus(g).split(":")
    return [
        ("Product Name", "product_name", g.gpu.name),
        ("Product Brand", "product_brand", g.gpu.brand),
        ("Product Architecture", "product_architecture", g.gpu.architecture),
        ("Display Mode", "display_mode", "Disabled"),
        ("Display Active", "display_active", "Disabled"),
        ("Persistence Mode", "persistence_mode", "Enabled"),
        ("Addressing Mode", "addressing_mode", g.gpu.addressing_mode or "None"),
        (
            "MIG Mode",
            "mig_mode",
            [
                ("Current", "current_mig", _mig_mode(g).strip("[]")),
                ("Pending", "pending_mig", _mig_mode(g).strip("[]")),
            ],
        ),
        *([("MIG Devices", "mig_devices", migs)] if migs else [("MIG Devices", "mig_devices", "None")]),
        ("GPU UUID", "uuid", g.gpu.uuid),
        ("Minor Number", "minor_number", str(g.gpu.minor)),
        (
            "PCI",
            "pci",
            [
                ("Bus", "pci_bus", f"0x{bus}"),
                ("Device", "pci_device", f"0x{rest.split('.')[0]}"),
                ("Domain", "pci_domain", f"0x{domain[-4:]}"),
                ("Bus Id", "pci_bus_id", _bus(g)),
            ],
        ),
        ("Fan Speed", "fan_speed", "N/A"),
        ("Performance State", "performance_state", "P0"),
        (
            "FB Memory Usage",
            "fb_memory_usage",
            [
                ("Total", "total", f"{g.memory_mib} MiB"),
                ("Reserved", "reserved", "0 MiB"),
                ("Used", "used", "0 MiB"),
                ("Free", "free", f"{g.memory_mib} MiB"),
            ],
        ),
        ("Compute Mode", "compute_mode", _compute_mode(hardware, g)),
        (
            "Utilization",
            "utilization",
            [
                ("GPU", "gpu_util", "N/A" if g.gpu.mig_enabled else "0 %"),
                ("Memory", "memory_util", "N/A" if g.gpu.mig_enabled else "0 %"),
            ],
        ),
        ("Temperature", "temperature", [("GPU Current Temp", "gpu_temp", f"{IDLE_C} C")]),
        (
            "GPU Power Readings",
            "gpu_power_readings",
            [
                ("Instantaneous Power Draw", "instant_power_draw", f"{g.draw_w:.2f} W"),
                ("Current Power Limit", "current_power_limit", f"{g.power_w:.2f} W"),
            ],
        ),
        ("Processes", "processes", "None"),
    ]


def _detailed(hardware: SimulatedHardware, gpus: Sequence[Shown], now: float) -> str:
    when = datetime.fromtimestamp(now, UTC).strftime("%a %b %e %H:%M:%S %Y")
    lines = ["", "==============NVSMI LOG==============", ""]
    rows = (
        ("Timestamp", when),
        ("Driver Version", hardware.versions().driver),
        ("CUDA Version", _cuda(hardware)),
        ("Simulated By", "Dragoman"),
    )
    lines += [f"{label:<50}: {value}" for label, value in rows]
    lines += ["", f"Attached GPUs{'':<37}: {len(gpus)}"]

    def add(tree: _Tree, depth: int) -> None:
        for label, _, value in tree:
            indent = " " * (4 * depth)
            if isinstance(value, str):
                lines.append(f"{indent}{label:<{50 - 4 * depth}}: {value}")
            else:
                lines.append(f"{indent}{label}")
                add(value, depth + 1)

    for g in gpus:
        lines.append(f"GPU {_bus(g)}")
        add(_tree(hardware, g), 1)
        lines.append("")
    return "\n".join(lines) + "\n"


def _xml(hardware: SimulatedHardware, gpus: Sequence[Shown], now: float) -> str:
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<!-- simulated by Dragoman -->",
        "<nvidia_smi_log>",
        f"\t<timestamp>{datetime.fromtimestamp(now, UTC).strftime('%a %b %e %H:%M:%S %Y')}</timestamp>",
        f"\t<driver_version>{hardware.versions().driver}</driver_version>",
        f"\t<cuda_version>{_cuda(hardware)}</cuda_version>",
        f"\t<attached_gpus>{len(gpus)}</attached_gpus>",
    ]

    def add(tree: _Tree, depth: int) -> None:
        for _, tag, value in tree:
            indent = "\t" * depth
            if isinstance(value, str):
                lines.append(f"{indent}<{tag}>{escape(value)}</{tag}>")
            else:
                lines.append(f"{indent}<{tag}>")
                add(value, depth + 1)
                lines.append(f"{indent}</{tag}>")

    for g in gpus:
        lines.append(f'\t<gpu id="{_bus(g)}">')
        add(_tree(hardware, g), 2)
        lines.append("\t</gpu>")
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"
