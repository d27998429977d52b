"""What the parts of a cluster in one process may do: what they need, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.access import parts
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import User
from dragoman.errors import Denied
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.access.stage import may

DRA = "resource.k8s.io"


@pytest.fixture
def registry() -> Registry:
    return in_memory(Clock(), Entropy(1))


RIGHTS: dict[str, tuple[User, str, str, str, bool]] = {
    "the scheduler binds": (parts.SCHEDULER, "create", "pods/binding", "", True),
    "the scheduler allocates": (parts.SCHEDULER, "patch", "resourceclaims/binding", DRA, True),
    "the scheduler reads no secrets": (parts.SCHEDULER, "get", "secrets", "", False),
    "the reader lists everything": (parts.READER, "watch", "anything", "example.com", True),
    "the reader writes no pods": (parts.READER, "create", "pods", "", False),
    "controllers make claims": (parts.CONTROLLERS, "create", "resourceclaims", DRA, True),
    "controllers report on pools": (parts.CONTROLLERS, "update", "resourcepoolstatusrequests/status", DRA, True),
    "controllers run no commands in pods": (parts.CONTROLLERS, "create", "pods/exec", "", False),
    "controllers grant no rights": (
        parts.CONTROLLERS,
        "create",
        "clusterrolebindings",
        "rbac.authorization.k8s.io",
        False,
    ),
    "drivers publish": (parts.driver("n1"), "create", "resourceslices", DRA, True),
    "drivers do not allocate": (parts.driver("n1"), "patch", "resourceclaims/binding", DRA, False),
    "drivers delete no pods": (parts.driver("n1"), "delete", "pods", "", False),
    "agents share a watch": (parts.NODE_HOST, "watch", "pods", "", True),
    "but write no pods": (parts.NODE_HOST, "patch", "pods/status", "", False),
    "faults are config maps": (parts.SIMULATION, "patch", "configmaps", "", True),
    "and nothing else": (parts.SIMULATION, "patch", "secrets", "", False),
}


@pytest.mark.parametrize("case", RIGHTS, ids=str)
def test_rights(registry: Registry, case: str) -> None:
    user, verb, resource, group, expected = RIGHTS[case]
    assert registry.authorizer.allows(may(user, verb, resource, group, namespace="default", name="x")) is expected


def test_a_client_in_the_process_has_its_users_rights(registry: Registry) -> None:
    client = InProcessClient(registry, user=User("anna", ("system:authenticated",)))
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    async def scenario() -> None:
        calls = (
            client.get(BY_NAME["Pod"], "p", "default"),
            client.list(BY_NAME["Pod"]),
            anext(client.watch(BY_NAME["Pod"], "0")),
            client.create(BY_NAME["Pod"], pod, "default"),
            client.patch(BY_NAME["Pod"], "p", {}, "default"),
            client.replace(BY_NAME["ConfigMap"], {"metadata": {"name": "c", "namespace": "default"}}),
            client.delete(BY_NAME["Pod"], "p", "default"),
            client.delete_collection(BY_NAME["Pod"], "default"),
        )
        for call in calls:
            with pytest.raises(Denied, match='User "anna" cannot'):
                await call

    asyncio.run(scenario())
