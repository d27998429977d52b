"""What does Dragoman have to know of the GPU driver? On real GPUs through NVML, or on those of a machine profile."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dragoman.drivers.entry import DriverEntry, DriverFactory, DriverPlan, GateCatalogue, MachineProfile
from dragoman.drivers.nvidia.classes import DEVICE_CLASSES, GPU
from dragoman.drivers.nvidia.faults import FAULTS
from dragoman.drivers.nvidia.gates import GATES, gates_with
from dragoman.drivers.nvidia.images import MPS_IMAGE, MPS_NAMESPACE

if TYPE_CHECKING:
    from dragoman.api.shape import Object
    from dragoman.known_drivers import KnownDriver


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates of the driver, with upstream's names",
    )
    parser.add_argument(
        "--consumable-shares",
        default="",
        metavar="MODE",
        help="disabled, memory, unlimited or a number of shares; needs the gate ConsumableShares",
    )
    parser.add_argument(
        "--xid-effect",
        choices=["NoSchedule", "NoExecute", "None"],
        default="NoSchedule",
        help="effect of the taint after an XID that counts, with the gate NVMLDeviceHealthCheck; default: NoSchedule",
    )
    parser.add_argument(
        "--additional-xids-to-ignore",
        default="",
        metavar="N,...",
        help="XIDs to ignore in addition to 13, 31, 43, 45, 68 and 109",
    )
    parser.add_argument(
        "--clear-taints-on-recovery",
        action="store_true",
        help="remove taints when the GPU recovers; default: they stay until the driver restarts",
    )
    parser.add_argument(
        "--allow-device-plugin",
        action="store_true",
        help="start though a device plugin offers GPUs of this node (upstream's gpuResourcesEnabledOverride); those "
        "GPUs are tainted",
    )
    parser.add_argument(
        "--nvidia-driver-root", default="/", metavar="DIR", help="where the kernel driver's files are on the host"
    )
    parser.add_argument(
        "--mps-image",
        default=MPS_IMAGE,
        metavar="IMAGE",
        help="image of MPS control daemons; it needs sh, chroot and cat; default: %(default)s",
    )
    parser.add_argument(
        "--mps-namespace",
        default=MPS_NAMESPACE,
        metavar="NS",
        help="namespace of MPS control daemons; default: %(default)s",
    )
    parser.add_argument(
        "--driver-root-ctr-path", default="", metavar="DIR", help="the same folder as this process sees it"
    )


async def _before(args: Namespace) -> None:
    from dragoman.drivers.nvidia.device_plugin import other_path

    if not args.allow_device_plugin:
        await other_path.refuse_plugin(args.root_dir)


def _standalone(args: Namespace, machine: MachineProfile | None) -> DriverFactory:
    from dragoman.drivers.nvidia import factory

    return factory.standalone(args, machine)


def _up_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--gpu-feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates of the NVIDIA driver on simulated machines; they override the profile's",
    )
    parser.add_argument(
        "--xid-effect",
        choices=["NoSchedule", "NoExecute", "None"],
        default="NoSchedule",
        help="effect of the taint after an XID, with the gate NVMLDeviceHealthCheck; default: NoSchedule",
    )

    parser.add_argument(
        "--dcgm-exporter",
        action="store_true",
        help="show the DCGM exporter's counters of simulated GPUs, with a made-up load, at the API server's /metrics",
    )


def _installed() -> tuple[Object, ...]:
    from dragoman.drivers.nvidia import factory

    return factory.installed()


def _up_settings(args: Namespace) -> Any:
    from dragoman.drivers.nvidia import factory

    return factory.up_settings(args)


def _on_machine(machine: MachineProfile, settings: Any) -> DriverFactory | None:
    if not machine.profile.gpus:
        return None
    from dragoman.drivers.nvidia import factory

    return factory.on_machine(machine, settings or factory.MACHINE_SETTINGS)


def _check_gates(changes: Mapping[str, bool], where: str) -> object:
    return gates_with(changes, where)


def _known() -> tuple[KnownDriver, ...]:
    from dragoman.drivers.nvidia import known

    return known.DRIVERS


def _mig_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="MODEL", help="GPU model or machine profile, as h100, 'NVIDIA A30', dgx-h100"
    )
    parser.add_argument(
        "--mix", required=True, metavar="PROFILE=N[,...]", help="instances wanted, as 1g.10gb=12,3g.40gb=3"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs that there are; exit status 1 if more are needed")
    parser.add_argument("--per-node", type=int, default=8, metavar="N", help="GPUs of a node; default: %(default)s")


def _mig_plan(args: Namespace) -> Any:
    from dragoman.drivers.nvidia import mig_plan  # --help is fast without it

    return mig_plan.run(args)


ENTRY = DriverEntry(
    "nvidia",
    GPU,
    "NVIDIA GPUs through NVML, or simulated ones, gpu.nvidia.com",
    standalone=_standalone,
    on_machine=_on_machine,
    classes=DEVICE_CLASSES,
    simulate="the GPUs of a machine profile instead of this machine's",
    flags=_flags,
    up_flags=_up_flags,
    up_settings=_up_settings,
    gates=GateCatalogue(GATES, _check_gates),
    faults=FAULTS,
    known=_known,
    installed=_installed,
    before=_before,
    plans=(
        DriverPlan(
            "mig", "MIG layouts for a mix of instances, as a file for mig-parted", "MigPlan", _mig_flags, _mig_plan
        ),
    ),
)
