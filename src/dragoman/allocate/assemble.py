"""What is written into status.allocation for the devices picked? Results, configuration and node selector.

Never chooses. Sources: KEP-4381 (configuration, node selector), KEP-5075 (shares), KEP-5007, KEP-5963, KEP-5945.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dragoman.allocate.candidates import Candidate
from dragoman.allocate.slots import ClaimPlan, RequestPlan, Rules
from dragoman.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dragoman.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
)
from dragoman.snapshot.pools import SeenDevice

FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"


def allocation_of(
    plan: ClaimPlan,
    chosen: Sequence[RequestPlan],
    picks: Iterable[tuple[RequestPlan, Candidate]],
    node: str,
    rules: Rules,
    share_id: Callable[[], str],
) -> AllocationResult:
    """The allocation of one claim. chosen: the plan of each request; picks: in the order in which they were made."""
    picked = list(picks)
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(_result(request_plan, candidate, rules, share_id) for request_plan, candidate in picked),
            config=_config(plan, chosen),
        ),
        node_selector=node_selector_of([candidate.device_state.seen for _, candidate in picked], node, rules),
    )


def _result(
    request_plan: RequestPlan, candidate: Candidate, rules: Rules, share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    device_state = candidate.device_state
    device = device_state.seen.device
    groups = {use.key[2]: use.groups for use in device_state.uses if use.groups} if rules.groups else {}
    return DeviceRequestAllocationResult(
        request=request_plan.request,
        driver=device_state.id.driver,
        pool=device_state.id.pool,
        device=device_state.id.device,
        admin_access=True if request_plan.admin else None,
        tolerations=request_plan.tolerations,
        binding_conditions=device.binding_conditions if rules.binding else (),
        binding_failure_conditions=device.binding_failure_conditions if rules.binding else (),
        share_id=share_id() if device_state.multi else None,
        consumed_capacity=(candidate.consumed or None) if device_state.multi else None,
        skip_node_operations=device_state.seen.resource_slice.spec.skip_node_operations
        if rules.skip_operations
        else (),
        compatibility_groups=groups or None,
    )


def _config(plan: ClaimPlan, chosen: Sequence[RequestPlan]) -> tuple[DeviceAllocationConfiguration, ...]:
    entries: list[DeviceAllocationConfiguration] = []
    references: dict[str, list[str]] = {}
    classes: dict[str, DeviceClass] = {}
    for request_plan in chosen:
        name = request_plan.device_class.metadata.name
        classes.setdefault(name, request_plan.device_class)
        references.setdefault(name, []).append(request_plan.request)
    everything = [{request_plan.parent, request_plan.request} for request_plan in chosen]
    for name, device_class in classes.items():
        entries += [
            DeviceAllocationConfiguration(FROM_CLASS, _scoped(references[name], everything), config.opaque)
            for config in device_class.spec.config
        ]
    reached = {reference for names in everything for reference in names}
    for config in plan.claim.spec.devices.config:
        if not config.requests or not reached.isdisjoint(config.requests):
            entries.append(
                DeviceAllocationConfiguration(FROM_CLAIM, _scoped(config.requests, everything), config.opaque)
            )
    return tuple(entries)


def _scoped(requests: Sequence[str], everything: list[set[str]]) -> tuple[str, ...]:
    """The requests as listed, or () when they cover the whole claim."""
    return () if all(not names.isdisjoint(requests) for names in everything) else tuple(requests)


def node_selector_of(devices: Iterable[SeenDevice], node: str, rules: Rules) -> NodeSelector | None:
    """Where the allocation can be used: only this node if one device is bound to it, else all selectors together."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for seen in devices:
        if is_local(seen, binding=rules.binding):
            here = NodeSelectorRequirement("metadata.name", "In", (node,))
            return NodeSelector((NodeSelectorTerm(match_fields=(here,)),))
        for term in selector_of(seen).node_selector_terms:
            _merge(fields, term.match_fields)
            _merge(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields)),))


def is_local(seen: SeenDevice, *, binding: bool) -> bool:
    """Whether the device, once allocated, can be used on its node only."""
    if seen.resource_slice.spec.node_name is not None or (binding and bool(seen.device.binds_to_node)):
        return True
    return bool(seen.resource_slice.spec.per_device_node_selection) and seen.device.node_name is not None


def selector_of(seen: SeenDevice) -> NodeSelector:
    """The node selector of the device or its slice; without terms where there is none."""
    if seen.resource_slice.spec.per_device_node_selection:
        return seen.device.node_selector or NodeSelector()
    return seen.resource_slice.spec.node_selector or NodeSelector()


def _merge(into: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    for requirement in more:
        if not any(
            have.key == requirement.key
            and have.operator == requirement.operator
            and set(have.values) == set(requirement.values)
            for have in into
        ):
            into.append(requirement)
