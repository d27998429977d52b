"""How much of a capacity does one consumer take, and does the device's policy allow it? (KEP-5075)

Policies count in whole units (fractions rounded up first), or in thousandths where the gate for fractional ranges
is on and the policy holds a fraction; comparisons are exact. Never asks what is left.
"""

from __future__ import annotations

from dragoman.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from dragoman.values.quantity import NANO, Quantity

ZERO = Quantity.of(0)
_MILLI = NANO // 1000


def consumption(capacity: DeviceCapacity, asked: Quantity | None, *, fractional: bool) -> Quantity:
    """What one consumer takes of a capacity that asks for `asked` (None: names no amount)."""
    policy = capacity.request_policy
    if asked is None:
        if policy is not None and policy.default is not None:
            return policy.default
        return capacity.value or ZERO
    if policy is None:
        return asked
    if policy.valid_range is not None:
        return _into_range(asked, policy, policy.valid_range, fractional=fractional)
    if policy.valid_values:
        return min((value for value in policy.valid_values if value.nanos >= asked.nanos), default=asked)
    return asked


def violation(capacity: DeviceCapacity, amount: Quantity, *, fractional: bool) -> str:
    """Which rule of the policy forbids the amount: "max N", "step N from N", "one of N, N"; "" if none does."""
    policy = capacity.request_policy
    if policy is None or (policy.default is not None and policy.default.nanos == amount.nanos):
        return ""
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount.nanos > valid.max.nanos:
            return f"max {valid.max}"
        if valid.step is not None:
            unit = _unit(policy, valid, fractional=fractional)
            low, step = _count(valid.min or ZERO, unit), _count(valid.step, unit)
            if step > 0 and (_count(amount, unit) - low) % step:
                return f"step {valid.step} from {valid.min or ZERO}"
        return ""
    if policy.valid_values and all(value.nanos != amount.nanos for value in policy.valid_values):
        return "one of " + ", ".join(str(value) for value in policy.valid_values)
    return ""


def _into_range(
    asked: Quantity, policy: CapacityRequestPolicy, valid: CapacityRequestPolicyRange, *, fractional: bool
) -> Quantity:
    low = valid.min or ZERO
    if asked.nanos < low.nanos:
        return low
    if valid.step is None:
        return asked
    unit = _unit(policy, valid, fractional=fractional)
    start, step = _count(low, unit), _count(valid.step, unit)
    if step <= 0:
        return asked
    steps = -((start - _count(asked, unit)) // step)
    return Quantity((start + steps * step) * unit, valid.step.format)


def _unit(policy: CapacityRequestPolicy, valid: CapacityRequestPolicyRange, *, fractional: bool) -> int:
    if not fractional:
        return NANO
    amounts = (valid.min, valid.max, valid.step, policy.default)
    return _MILLI if any(amount is not None and amount.nanos % NANO for amount in amounts) else NANO


def _count(amount: Quantity, unit: int) -> int:
    """Units, fractions rounded up away from zero."""
    return amount.value() if unit == NANO else amount.milli()
