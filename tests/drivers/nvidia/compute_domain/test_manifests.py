"""Are the manifests those of the code?"""

from __future__ import annotations

import make_compute_domain


def test_the_manifest_in_deploy_is_the_one_that_is_made() -> None:
    assert make_compute_domain.FILE.read_text() == make_compute_domain.text()
