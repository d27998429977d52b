"""What does a failed pod mean for its Job? spec.podFailurePolicy, and spec.successPolicy for indexes.

Source: the API's PodFailurePolicy and SuccessPolicy. Never counts.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.core import Pod
from dragoman.reconcile.workloads.indexes import parsed

COUNT, FAIL_JOB, FAIL_INDEX, IGNORE = "Count", "FailJob", "FailIndex", "Ignore"


def verdict(policy: Any, pod: Pod) -> tuple[str, str]:
    """(action, message) of the first rule that matches a failed pod; Count when none does."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        why = _by_exit_code(rule.get("onExitCodes"), pod) or _by_condition(rule.get("onPodConditions"), pod)
        if why:
            return rule.get("action", COUNT), f"{why} matching {rule.get('action', COUNT)} rule at index {number}"
    return COUNT, ""


def _by_exit_code(wanted: Any, pod: Pod) -> str:
    if not wanted:
        return ""
    values = wanted.get("values") or []
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        name = status.get("name", "")
        ended = (status.get("state") or {}).get("terminated")
        if not ended or wanted.get("containerName") not in (None, "", name):
            continue
        code = ended.get("exitCode", 0)
        if code and (code in values) == (wanted.get("operator") == "In"):
            meta = pod.metadata
            return f"Container {name} for pod {meta.namespace}/{meta.name} failed with exit code {code}"
    return ""


def _by_condition(wanted: Any, pod: Pod) -> str:
    for pattern in wanted or ():
        for condition in pod.status.conditions:
            if condition.type == pattern.get("type") and condition.status == pattern.get("status", "True"):
                return f"Pod {pod.metadata.namespace}/{pod.metadata.name} has condition {condition.type}"
    return ""


def success_rule(policy: Any, succeeded: set[int]) -> int | None:
    """The first rule of a success policy that the succeeded indexes fulfil."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        among = parsed(rule.get("succeededIndexes")) if rule.get("succeededIndexes") is not None else None
        count = rule.get("succeededCount")
        hits = len(succeeded if among is None else succeeded & among)
        wanted = count if count is not None else len(among or ())
        if wanted and hits >= wanted:
            return number
    return None
