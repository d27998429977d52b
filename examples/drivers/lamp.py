"""A whole driver: four lamps on a node. Run it beside a kubelet, or a `dragoman node-agent`, with

python lamp.py NODE /var/lib/kubelet
"""

import asyncio
import sys
from pathlib import Path

from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import find
from dragoman.node.cdi import DeviceNode, Edits
from dragoman.node.driver import DeviceSetup, Pool, Setup, device
from dragoman.node.plugin import Places, Plugin
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy


class Lamps:
    """What a driver is: its name, what there is, how it is made usable, and how that is undone."""

    name = "lamp.example.com"

    def pools(self):
        """Published as ResourceSlices."""
        return {"lamps": Pool(tuple(device(f"lamp-{n}", {"watts": 40 + 20 * n}) for n in range(4)))}

    def prepare(self, claim):
        """Switch the allocated lamps on; say what a container needs to use them."""
        return Setup(
            [
                DeviceSetup(
                    result.pool,
                    result.device,
                    Edits(env=(f"LAMP={result.device}",), device_nodes=(DeviceNode(f"/dev/{result.device}"),)),
                )
                for result in claim.results
            ]
        )

    def unprepare(self, claim):
        """Switch them off; must not mind if they are off."""


async def main(node_name, root_dir):
    """Serve until interrupted."""
    clock, entropy = Clock(), Entropy()
    client = HttpClient(find(), clock, entropy)
    places = Places.under(Path(root_dir), Lamps.name)
    await Plugin(Lamps(), client, clock, entropy, node_name=node_name, places=places).serve()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
