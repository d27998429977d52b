"""The example driver, `gpu.example.com`: made-up GPUs that every lab can have."""

from dragoman.drivers.example.driver import DEVICE_CLASS, DRIVER, ExampleDriver
from dragoman.drivers.example.run import install, plugin, run

__all__ = ["DEVICE_CLASS", "DRIVER", "ExampleDriver", "install", "plugin", "run"]
