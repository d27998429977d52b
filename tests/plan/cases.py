"""How many random cases are tried? DRAGOMAN_PLAN_CASES of them, 50 by default; each is known by its seed."""

from __future__ import annotations

import os

SEEDS = range(int(os.environ.get("DRAGOMAN_PLAN_CASES", "50")))
