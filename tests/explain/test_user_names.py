"""Do texts name what the user wrote, where the scheduler made a claim and requests of it?"""

from __future__ import annotations

from dragoman.api import codec
from dragoman.api.core import PodSpec
from dragoman.explain.user_names import in_user_words, json_in_user_words, user_names

SPEC = codec.decode(
    PodSpec,
    {
        "initContainers": [{"name": "load", "resources": {"requests": {"e.com/nic": "1"}}}],
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "4"}}}],
    },
)
NAMES = user_names(SPEC)


def test_a_request_is_container_and_resource() -> None:
    assert NAMES["container-0-request-0"] == "container load, e.com/nic: 1"
    assert NAMES["container-1-request-1"] == "container main, nvidia.com/gpu: 4"
    text = "claim <extended-resources>, request container-1-request-1: 4 devices of class gpu requested"
    assert in_user_words(text, NAMES) == "container main, nvidia.com/gpu: 4: 4 devices of class gpu requested"
    text = "request container-0-request-0 of claim <extended-resources>: ask for 1 instead of 2 devices"
    assert in_user_words(text, NAMES) == "container load, e.com/nic: 1: ask for 1 instead of 2 devices"
    text = "cannot be met together: requests container-0-request-0, container-1-request-1"
    assert (
        in_user_words(text, NAMES)
        == "cannot be met together: container load, e.com/nic: 1 and container main, nvidia.com/gpu: 4"
    )
    assert (
        in_user_words("claim <extended-resources> has devices", NAMES) == "the claim for extended resources has devices"
    )


def test_names_that_users_wrote_stay() -> None:
    assert in_user_words("claim c, request my-request-1: x", NAMES) == "claim c, request my-request-1: x"


def test_facts_of_json_keep_the_apis_names() -> None:
    body = {"reasons": [{"message": "request container-0-request-0: x", "request": "container-0-request-0"}]}
    assert json_in_user_words(body, NAMES) == {
        "reasons": [{"message": "container load, e.com/nic: 1: x", "request": "container-0-request-0"}]
    }
