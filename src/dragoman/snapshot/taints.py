"""Which taints does a device carry once the administrator's rules are applied, and what tolerates them? (KEP-5055)

Published taints come first, then those of matching DeviceTaintRules by rule name; a rule without selector
applies to nothing. Nodes' taints are tolerated by the same rule. Never decides whether a taint matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dragoman.api.core import Taint, Toleration
from dragoman.api.resource import Device, DeviceTaint, DeviceTaintRule, DeviceToleration

if TYPE_CHECKING:
    from dragoman.snapshot.change import Snapshot


def rules_of_pool(snapshot: Snapshot, driver: str, pool: str) -> tuple[DeviceTaintRule, ...]:
    """The rules that may concern devices of a pool, by name."""
    if not snapshot.taint_rules:
        return ()
    return tuple(
        rule for _, rule in sorted(snapshot.taint_rules.items()) if applies(rule, driver=driver, pool=pool, device=None)
    )


def applies(rule: DeviceTaintRule, *, driver: str, pool: str, device: str | None) -> bool:
    """Whether a rule concerns a device; device None asks about the pool as a whole."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    return (
        selector.driver in (None, driver)
        and selector.pool in (None, pool)
        and (device is None or selector.device in (None, device))
    )


def taints_of(
    device: Device, driver: str, pool: str, rules: Iterable[DeviceTaintRule]
) -> tuple[tuple[str, DeviceTaint], ...]:
    """All taints of a device as (rule name, taint); the rule name is empty for a published taint."""
    found = [("", taint) for taint in device.taints]
    found += [
        (rule.metadata.name, rule.spec.taint)
        for rule in rules
        if applies(rule, driver=driver, pool=pool, device=device.name)
    ]
    return tuple(found)


def tolerates(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Empty effect or key match all; Exists ignores the value; an unknown operator never tolerates."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
