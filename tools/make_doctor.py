"""What does doctor check? Writes docs/reference/doctor.md from the table of checks: `make docs`."""

from __future__ import annotations

from pathlib import Path

from dragoman.doctor.check import AREAS
from dragoman.doctor.table import CHECKS

TARGET = Path(__file__).resolve().parents[1] / "docs" / "reference" / "doctor.md"
HEAD = """\
# Doctor

Made from the code by `make docs`. `dragoman doctor` answers whether a cluster is ready for DRA, and what in it
contradicts what. It reads a live cluster or a file and changes nothing.

    dragoman doctor                                # the cluster of the kubeconfig
    dragoman record -o cluster.json                # a file of it, for later or for somebody else
    dragoman doctor -f cluster.json
    dragoman doctor -o markdown                    # a production checklist
    dragoman doctor -o json                        # DoctorReport (outputs.md); or sarif, for code scanning

Each finding has a code, evidence (object, field, value), a fix and a source. A *blocker* keeps pods from their devices,
or can allocate a device twice; a *warning* may be intended; *info* is for a decision of yours. What cannot be seen is
reported as not checked, with the reason. Codes that [lint](lint.md) and [refusals](refusals.md) share mean the same
there; a finding may be more or less severe than its check where its evidence is (an everybody's right, a class that the
driver brings itself).

Exit status: 0 no blockers, 1 blockers, 2 the cluster or the file cannot be read.

**Rights.** [deploy/doctor.yaml](../../deploy/doctor.yaml) is a role with all that doctor reads. Without
a right the checks that need it are not checked. The gates of the API server need `get` on the path `/metrics`. Secrets
are never read; of ConfigMaps only `kube-system/kubelet-config` and `kubeadm-config`.

**Files.** In a dump of `kubectl get -o yaml` only what is there is known: versions of the server and its gates are not,
and a kind without objects counts as not seen. A record has both.
"""


def text() -> str:
    """The whole page."""
    parts = [HEAD]
    for area in AREAS:
        parts.append(f"\n## {area}\n\n| code | as it should be | severity | fix | source |\n|---|---|---|---|---|\n")
        for check in CHECKS:
            if check.area == area:
                severity = check.severity if check.find is not None else "not checked"
                cells = (f"`{check.code}`", check.item, severity, check.fix, check.source)
                parts.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    TARGET.write_text(text())
