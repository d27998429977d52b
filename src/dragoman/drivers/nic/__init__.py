"""Network adapters of simulated machines, published as dranet does it: driver `dra.net`, class `dranet.net`."""

from dragoman.drivers.nic.driver import DEVICE_CLASSES, DRIVER, NicDriver

__all__ = ["DEVICE_CLASSES", "DRIVER", "NicDriver"]
