"""Do the tests keep their own house? One place for builders of objects, a test for every module with logic."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src" / "dragoman"

BUILDERS = ("pod", "claim")
"""What `dragoman.testing.build` makes for all tests."""

OWN_BUILDERS = {
    "allocate/shortforms.py": "typed claims under one name, with any field of spec.devices",
    "api/test_convert.py": "objects without apiVersion, which says what they are converted from",
    "api/test_defaults.py": "bare objects: every field that is there is one that the test is about",
    "api/test_validate_core.py": "bare objects, wrong on purpose",
    "api/test_validate_dra.py": "bare objects, wrong on purpose",
    "apiserver/test_apply.py": "fragments as managers apply them",
    "apiserver/test_client_apply.py": "a spec of plain values, no pod that could run",
    "apiserver/test_patch.py": "fragments: what a patch holds",
    "apiserver/test_schema.py": "wrong on purpose",
    "apiserver/test_sessions.py": "a fixture: a pod that runs",
    "apiserver/test_table.py": "metadata and status; printers read no more",
    "drivers/nvidia/compute_domain/lab.py": "a workload that looks at its channels",
    "drivers/nvidia/test_device_plugin.py": "a workload that looks at its GPUs",
    "e2e/test_lab.py": "YAML as users write it",
    "e2e/test_nvidia.py": "YAML as users write it",
    "kubelet/test_claims.py": "as the kubelet reads them, under the names of its checkpoint",
    "kubelet/test_status.py": "as the kubelet reads them, with containers by name",
    "kubelet/test_containers.py": "as the kubelet reads them: a command, and who owns the pod",
    "lint/test_lint.py": "YAML, for findings name its lines",
    "real/objects.py": "what a real kubelet can run",
    "reconcile/serving.py": "adds a pod that serves to a cluster",
    "reconcile/test_autoscaling.py": "typed, with times and conditions",
    "reconcile/test_quota.py": "adds a pod to a cluster",
    "reconcile/workloads/revisions.py": "typed, of any fields",
    "snapshot/test_change.py": "a change that puts it",
    "vectors/allocator_scenarios.py": "written into the vectors' files, whose text stays as it is",
}
"""Files with a `pod` or `claim` of their own, each with what `dragoman.testing.build` does not make."""


def test_pods_and_claims_have_one_builder() -> None:
    found = set()
    for file in TESTS.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in BUILDERS:
                found.add(file.relative_to(TESTS).as_posix())
    assert found == set(OWN_BUILDERS), "use dragoman.testing.build, or say here what it cannot make"


LOGIC = 40
"""Branches and loops from which on a module has a test of its own name, or stands below."""

TESTED_BY = {
    "allocate/equivalence.py": "allocate/test_allocator.py schedule/test_equivalence.py laws/test_allocator_laws.py",
    "api/pod_defaults.py": "api/test_defaults.py",
    "api/validate/capacity.py": "api/test_validate_dra.py",
    "api/validate/claims.py": "api/test_validate_dra.py",
    "api/validate/containers.py": "api/test_validate_core.py",
    "api/validate/core.py": "api/test_validate_core.py",
    "api/validate/meta.py": "api/test_validate_core.py",
    "api/validate/pods.py": "api/test_validate_core.py",
    "api/validate/shared.py": "api/test_validate_dra.py",
    "api/validate/slices.py": "api/test_validate_dra.py",
    "api/validate/workloads.py": "api/test_validate_core.py",
    "apiserver/access/tokens.py": "apiserver/access/test_door.py",
    "apiserver/admission/accounts.py": "apiserver/test_registry.py apiserver/access/test_door.py",
    "apiserver/admission/restriction.py": "apiserver/access/test_node.py",
    "apiserver/admission/rights.py": "apiserver/access/test_door.py apiserver/access/test_rbac.py",
    "apiserver/app.py": "apiserver/test_http.py apiserver/test_limits.py",
    "apiserver/custom/kind.py": "apiserver/custom/test_definition.py",
    "apiserver/custom/prune.py": "apiserver/custom/test_definition.py apiserver/custom/test_check.py",
    "apiserver/external/calling.py": "apiserver/external/test_webhooks.py",
    "apiserver/external/expressions.py": "apiserver/external/test_policies.py",
    "apiserver/external/matching.py": "apiserver/external/test_webhooks.py apiserver/external/test_policies.py",
    "apiserver/external/review.py": "apiserver/external/test_webhooks.py apiserver/external/test_converting.py",
    "apiserver/fieldset.py": "apiserver/test_apply.py apiserver/test_apply_laws.py",
    "apiserver/fieldwalk.py": "apiserver/test_apply.py apiserver/test_apply_laws.py",
    "apiserver/handlers.py": "apiserver/test_http.py apiserver/test_clients.py",
    "apiserver/openapi2.py": "apiserver/test_openapi.py",
    "apiserver/options.py": "apiserver/test_http.py",
    "apiserver/printers/": "apiserver/test_table.py",
    "apiserver/reviews.py": "apiserver/access/test_door.py",
    "apiserver/selectors.py": "apiserver/test_store.py apiserver/test_http.py",
    "apiserver/strategic.py": "apiserver/test_patch.py",
    "apiserver/strategies/admission.py": "apiserver/test_registry.py apiserver/external/test_webhooks.py",
    "apiserver/streams.py": "apiserver/test_sessions.py",
    "apiserver/subresources.py": "apiserver/test_registry.py",
    "cel/estimate.py": "cel/test_costs.py cel/test_laws.py",
    "cel/estimate_calls.py": "cel/test_costs.py",
    "cel/lex.py": "cel/test_errors.py cel/test_compile.py",
    "cel/parse.py": "cel/test_errors.py cel/test_laws.py",
    "cel/stdlib/": "cel/test_values.py vectors/test_language.py",
    "cel/types.py": "cel/test_compile.py",
    "cel/validate.py": "cel/test_check.py cel/test_errors.py",
    "cli/changes.py": "cli/test_simulate.py",
    "cli/device_table.py": "cli/test_devices.py",
    "cli/drill_run.py": "ops/test_drills.py",
    "cli/fault.py": "e2e/test_faults.py cli/test_fault_progress.py",
    "cli/plan_run.py": "plan/test_capacity.py plan/test_buy.py plan/test_moves.py cli/test_outputs.py",
    "cli/source.py": "cli/test_simulate.py cli/test_explain.py",
    "cluster/cache.py": "cluster/test_watch.py daemon/test_scheduler.py",
    "daemon/autoscaler.py": "e2e/test_autoscaler.py",
    "daemon/controllers.py": "reconcile/test_controllers_live.py reconcile/test_controllers_faults.py",
    "doctor/": "doctor",
    "drivers/nvidia/compute_domain/": "drivers/nvidia/compute_domain",
    "drivers/nvidia/device_plugin/other_path.py": "drivers/nvidia/test_both_paths.py",
    "drivers/nvidia/host.py": "drivers/nvidia/test_nvml.py",
    "drivers/nvidia/mig_parted.py": "drivers/nvidia/test_mig_labels.py",
    "drivers/nvidia/simulated.py": "drivers/nvidia/test_nvml.py drivers/test_stand_ins.py",
    "explain/candidates.py": "explain/test_hints.py",
    "explain/conflict_messages.py": "explain/test_conflict.py explain/test_hints.py",
    "explain/describe.py": "explain/test_state.py",
    "explain/objects.py": "explain/test_state.py",
    "explain/report.py": "explain/test_messages.py cli/test_explain.py",
    "kubelet/agent.py": "kubelet/test_lifecycle.py kubelet/test_kill.py",
    "kubelet/isolation.py": "e2e/test_isolation.py e2e/test_processes.py",
    "kubelet/load.py": "e2e/test_autoscaler.py",
    "kubelet/node_object.py": "kubelet/test_lifecycle.py",
    "kubelet/plugin_devices.py": "kubelet/test_device_plugins.py",
    "kubelet/plugins.py": "kubelet/test_over_sockets.py kubelet/test_lifecycle.py",
    "kubelet/probes.py": "kubelet/test_lifecycle.py",
    "kubelet/shell/": "kubelet/test_shell.py kubelet/shell apiserver/test_sessions.py",
    "kubelet/volumes.py": "kubelet/test_lifecycle.py",
    "lint/references.py": "lint/test_lint.py",
    "lint/rollouts.py": "lint/test_articles.py lint/test_lint.py",
    "lint/selectors.py": "lint/test_lint.py",
    "lint/shape.py": "lint/test_lint.py",
    "lint/unknown.py": "lint/test_lint.py",
    "migrate/": "migrate",
    "node/bench/": "node/bench",
    "ops/drill.py": "ops/test_drills.py",
    "plan/": "plan",
    "quota/": "apiserver/test_quota.py reconcile/test_quota.py",
    "reconcile/autoscaling/": "reconcile/test_autoscaling.py",
    "snapshot/pools.py": "allocate/test_allocator.py snapshot/test_change.py",
    "snapshot/views.py": "snapshot/test_change.py",
    "testing/world.py": "sim/test_world.py",
    "web/": "web/test_answers.py web/test_access.py web/test_browser.py",
    "whatif/admit.py": "whatif/test_same_as_cluster.py cli/test_simulate.py",
    "whatif/cluster.py": "whatif/test_changes.py whatif/test_writes.py",
}
"""Modules and folders with logic but no test of their own name, each with the tests that reach it from where
users stand: a parser through its language, an admission step through the registry, a check through its command."""

_BRANCHES = ast.If | ast.For | ast.While | ast.Try | ast.Match | ast.IfExp | ast.comprehension | ast.BoolOp


def _with_logic() -> Iterator[str]:
    """Modules of so much logic that no test has the name of."""
    named = {(file.relative_to(TESTS).parts[0], file.stem) for file in TESTS.rglob("test_*.py")}
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE)
        name = file.stem if file.stem != "__init__" else file.parent.name
        if "proto" in place.parts or (place.parts[0], f"test_{name}") in named:
            continue
        if sum(isinstance(node, _BRANCHES) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))) >= LOGIC:
            yield place.as_posix()


def _entry(place: str) -> str:
    return place if place in TESTED_BY else next((e for e in TESTED_BY if e[-1] == "/" and place.startswith(e)), "")


def test_every_module_with_logic_has_a_test_of_its_name_or_names_its_tests() -> None:
    without = list(_with_logic())
    assert not [place for place in without if not _entry(place)], "name a test after it, or name its tests here"
    assert {_entry(place) for place in without} == set(TESTED_BY), "no longer needed"
    tests = {test for entry in TESTED_BY.values() for test in entry.split()}
    assert not [test for test in sorted(tests) if not (TESTS / test).exists()]
