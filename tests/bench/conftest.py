"""Lets these tests import the experiment of bench/trace."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "trace"))
