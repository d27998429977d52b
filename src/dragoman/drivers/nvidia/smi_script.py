"""What does nvidia-smi say in a container with simulated GPUs? A script that lists those whose device node is there."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.drivers.nvidia.hardware import Gpu
from dragoman.profiles.machine import DriverVersion

PATH = "/usr/bin/nvidia-smi"
_SCRIPT = """\
#!/bin/sh
# Simulated: this machine has no GPUs. Lists the ones that the container was given.
gpus() {{
  for node in /dev/nvidia[0-9]*; do
    case "$node" in
{cases}
    esac
  done
}}
case "${{1:-}}" in
  -L|--list-gpus) gpus | while IFS='|' read -r i name uuid mib; do echo "GPU $i: $name (UUID: $uuid)"; done ;;
  --query-gpu=*)
    case "$*" in *noheader*) ;; *) echo "index, name, uuid, memory.total [MiB]" ;; esac
    gpus | while IFS='|' read -r i name uuid mib; do echo "$i, $name, $uuid, $mib MiB"; done ;;
  *)
    echo "NVIDIA-SMI {version} (simulated)   Driver Version: {version}   CUDA Version: {cuda}"
    gpus | while IFS='|' read -r i name uuid mib; do echo "$i  $name  0MiB / ${{mib}}MiB  $uuid"; done ;;
esac
"""


def script(gpus: Sequence[Gpu], driver: DriverVersion) -> str:
    """The script for a machine with these GPUs."""
    cases = [
        f"      /dev/nvidia{gpu.minor}) echo '{gpu.minor}|{gpu.name}|{gpu.uuid}|{(gpu.memory_bytes or 0) // 2**20}' ;;"
        for gpu in gpus
    ]
    return _SCRIPT.format(cases="\n".join(cases), version=driver.version, cuda=driver.cuda)
