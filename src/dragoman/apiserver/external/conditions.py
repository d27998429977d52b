"""Do the match conditions of a webhook or policy hold for a write? One false says no; an error asks failurePolicy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.external.authz import Asker, about
from dragoman.apiserver.external.expressions import (
    CompiledExpression,
    Evaluation,
    ExpressionInvalid,
    Spent,
    reported,
    value_of,
)
from dragoman.apiserver.external.review import request_of, versioned
from dragoman.cel.faults import EvalError
from dragoman.cel.values import CelValue


class MatchCondition(msgspec.Struct, frozen=True):
    """A named condition."""

    name: str
    expression: CompiledExpression | ExpressionInvalid


class ConditionFailed(Exception):
    """Conditions could not be evaluated; the text says why."""


def values_of(attributes: Attributes, version: str, authorizer: Authorizer | None) -> dict[str, CelValue]:
    """What expressions read of a write, without params and namespace."""
    out: dict[str, CelValue] = {
        "object": value_of(versioned(attributes, attributes.obj, version)),
        "oldObject": value_of(versioned(attributes, attributes.old, version)),
        "request": value_of(request_of(attributes, version)),
    }
    if authorizer is not None:
        asker, kind = Asker(authorizer, attributes.write.user), attributes.kind
        out["authorizer"] = asker
        out["authorizer.requestResource"] = about(
            asker, kind.group, kind.plural, attributes.namespace, attributes.name, attributes.subresource
        )
    return out


def hold(conditions: Sequence[MatchCondition], evaluation: Evaluation) -> bool:
    """Whether all hold. Raises Failed where none is false but one could not be evaluated."""
    errors: list[str] = []
    for condition in conditions:
        expression = condition.expression
        if isinstance(expression, ExpressionInvalid):
            errors.append(expression.why)
            continue
        try:
            value = evaluation.value(expression)
        except (EvalError, Spent) as error:
            errors.append(reported(expression.text, error) if isinstance(error, EvalError) else str(error))
            continue
        if value is False:
            return False
    if errors:
        raise ConditionFailed(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return True
