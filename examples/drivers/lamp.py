"""A whole driver: four lamps on each node. docs/guides/write-a-driver.md says how to try it.

python lamp.py --node-name NODE --root-dir DIR
"""

from dragoman.node.cdi import Edits
from dragoman.node.driver import DeviceSetup, Pool, Setup, device
from dragoman.node.main import main

NAME = "lamp.example.com"
LAMPS = {f"lamp-{n}": device(f"lamp-{n}", {"watts": 40 + 20 * n}) for n in range(4)}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": NAME},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{NAME}'"}}]},
}


class Lamps:
    """What a driver is: its name, what there is, how it is made usable, and how that is undone."""

    name = NAME

    def __init__(self, node_name):
        self.pool = node_name

    def pools(self):
        """Published as ResourceSlices."""
        return {self.pool: Pool(tuple(LAMPS.values()))}

    def prepare(self, claim):
        """Switch the allocated lamps on; say what a container needs to use them."""
        for result in claim.results:
            if result.device not in LAMPS:
                raise LookupError(f"there is no {result.device}")
        return Setup([self.setup(result) for result in claim.results])

    def setup(self, result):
        """One lamp in the container's environment. A real one would have DeviceNode("/dev/...") in its edits, too."""
        return DeviceSetup(result.pool, result.device, Edits(env=(f"LAMP={result.device}",)))

    def unprepare(self, claim):
        """Switch them off; must not mind if they are off."""


if __name__ == "__main__":
    main(Lamps, classes=[CLASS])
