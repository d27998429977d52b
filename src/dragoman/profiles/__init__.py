"""Which machines can be simulated? Data files, their types and their loader.

The files beside this one are facts, each with its source; users add their own in the same shape.
"""

from dragoman.profiles.load import Catalog
from dragoman.profiles.machine import GpuModel, GpuSlot, MigSetup, NicModel, NicSlot, Profile

__all__ = ["Catalog", "GpuModel", "GpuSlot", "MigSetup", "NicModel", "NicSlot", "Profile"]
