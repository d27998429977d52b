"""Does any module import itself on a way through others? Prints the cycle; exit status 1.

Counts what is imported inside functions too, and leaves out what only type checkers read.
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import grimp

ALLOWED = {"dragoman.kubelet.shell.": "the language calls its programs, and programs run texts of the language"}
"""Packages in which modules may import each other, each with the reason."""


def _may(importer: str, imported: str) -> bool:
    return any(importer.startswith(package) and imported.startswith(package) for package in ALLOWED)


def cycle_of(graph: grimp.ImportGraph) -> list[str]:
    """The modules of one cycle, first and last the same; empty if there is none."""
    before = {
        module: {other for other in graph.find_modules_directly_imported_by(module) if not _may(module, other)}
        for module in graph.modules
    }
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def main() -> int:
    """Check the package."""
    graph = grimp.build_graph("dragoman", exclude_type_checking_imports=True, cache_dir=None)
    cycle = cycle_of(graph)
    if cycle:
        sys.stderr.write("these modules import each other:\n  " + "\n  -> ".join(cycle) + "\n")
        return 1
    sys.stdout.write(f"no import cycle in {len(graph.modules)} modules\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
