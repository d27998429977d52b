"""What holds for all tests: hypothesis does not judge by the clock, since machines are small and noisy."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

settings.register_profile("dragoman", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("dragoman")

# Clusters that tests start are none of the user's who runs them.
os.environ["DRAGOMAN_HOME"] = tempfile.mkdtemp(prefix="dragoman-tests-")
