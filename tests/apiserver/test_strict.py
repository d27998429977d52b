"""Unknown and repeated fields: which, and in which order?"""

from __future__ import annotations

import pytest

from dragoman.apiserver.shape import shape_of
from dragoman.apiserver.strict import MAX_ERRORS, errors

DEPLOYMENT = ("apps", "v1", "Deployment")
CASES = {
    "nothing": ('{"spec":{"replicas":1}}', []),
    "the order of the text": (
        '{"spec":{"colour":1,"replicas":1,"replicas":2},"metadata":{"soul":1}}',
        ['unknown field "spec.colour"', 'duplicate field "spec.replicas"', 'unknown field "metadata.soul"'],
    ),
    "each once": ('{"spec":{"replicas":1,"replicas":2,"replicas":3}}', ['duplicate field "spec.replicas"']),
    "nothing below what is unknown": ('{"soul":{"a":1,"a":2},"soul":3}', ['unknown field "soul"']),
    "items of lists": (
        '{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b","nam":"c"}]}}}}',
        ['unknown field "spec.template.spec.containers[1].nam"'],
    ),
    "maps": ('{"metadata":{"labels":{"a":"1","a":"2"}}}', ['duplicate field "metadata.labels.a"']),
    "no JSON": ("spec: {}", []),
}


@pytest.mark.parametrize("case", CASES)
def test_fields_are_named_as_kube_apiserver_does(case: str) -> None:
    text, expected = CASES[case]
    assert errors(text.encode(), shape_of(DEPLOYMENT)) == expected


def test_without_a_schema_only_repeated_fields_count() -> None:
    assert errors(b'{"a":{"b":1,"b":2},"c":[{"d":1,"d":2}]}', None) == [
        'duplicate field "a.b"',
        'duplicate field "c[0].d"',
    ]


def test_counting_ends() -> None:
    many = "{" + ",".join(f'"x{number}":1' for number in range(1000)) + "}"
    assert len(errors(many.encode(), shape_of(DEPLOYMENT))) == MAX_ERRORS
