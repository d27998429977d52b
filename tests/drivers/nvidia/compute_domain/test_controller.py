"""One step of the controller at a time: what is there decides what is done."""

from __future__ import annotations

from dragoman.api.kinds import kind_of
from dragoman.api.meta import ObjectMeta
from dragoman.drivers.nvidia.compute_domain import controller
from dragoman.drivers.nvidia.compute_domain.controller import DomainInput, Made
from dragoman.drivers.nvidia.compute_domain.names import (
    FINALIZER,
    LABEL,
    Channel,
    ComputeDomain,
    DomainNode,
    DomainSpec,
    TemplateName,
)
from dragoman.drivers.nvidia.compute_domain.objects import MakeSettings
from dragoman.effects import Create, Delete, Emit, Patch

from .lab import DomainLab, domain, run

SETTINGS = MakeSettings()


def made(kind: str, name: str, **fields: object) -> Made:
    finalizers = fields.pop("finalizers", (FINALIZER,))
    return Made(kind, ObjectMeta(name=name, namespace="n", uid=f"uid-{name}", finalizers=finalizers, **fields))


def known(deleted: str | None = None, **fields: object) -> DomainInput:
    meta = ObjectMeta(
        name="d",
        namespace="default",
        uid="u",
        resource_version="5",
        finalizers=(FINALIZER,),
        deletion_timestamp=deleted,
    )
    spec = DomainSpec(channel=Channel(TemplateName("t")))
    return DomainInput("u", ComputeDomain(meta, spec), **fields)


def test_a_template_of_somebody_else_is_left_alone_and_named() -> None:
    step = controller.sync(known(other_template=True), SETTINGS)
    assert [e.body["kind"] for e in step.effects if isinstance(e, Create)] == ["ResourceClaimTemplate", "DaemonSet"]
    (event,) = [e for e in step.effects if isinstance(e, Emit)]
    assert event.reason == "TemplateExists"
    assert "default/t exists and is not of this ComputeDomain" in step.problem


def test_two_daemon_sets_of_one_domain_are_a_problem() -> None:
    step = controller.sync(known(made=(made("DaemonSet", "a"), made("DaemonSet", "b"))), SETTINGS)
    assert "more than one DaemonSet has the label of ComputeDomain default/d: a, b" in step.problem
    assert not [e for e in step.effects if isinstance(e, Create) and e.body["kind"] == "DaemonSet"]


def test_an_ending_domain_keeps_its_finalizer_until_nothing_is_left() -> None:
    node = ObjectMeta(name="n0", uid="node-uid", resource_version="9", labels={LABEL: "u"})
    there = (made("ResourceClaimTemplate", "t"), made("DaemonSet", "s", deletion_timestamp="2026-01-01T00:00:00Z"))
    effects = controller.sync(known("2026-01-01T00:00:00Z", made=there, nodes=(node,)), SETTINGS).effects
    assert [e.ref.name for e in effects if isinstance(e, Delete)] == ["t"]
    patches = {e.ref.name: e for e in effects if isinstance(e, Patch)}
    assert patches["n0"].patch == {"metadata": {"labels": {LABEL: None}}}
    assert patches["n0"].resource_version == "9"
    assert patches["s"].patch == {"metadata": {"finalizers": None}}
    assert "d" not in patches
    (last,) = controller.sync(known("2026-01-01T00:00:00Z"), SETTINGS).effects
    assert (last.ref.name, last.patch) == ("d", {"metadata": {"finalizers": None}})


def test_ready_means_all_that_have_joined_and_enough_of_them() -> None:
    ready, late = DomainNode("a", status="Ready"), DomainNode("b")
    assert controller.overall([], 0) == "Ready"
    assert controller.overall([ready], 0) == "Ready"
    assert controller.overall([ready, late], 0) == "NotReady"
    assert controller.overall([ready], 2) == "NotReady"


def test_what_a_domain_that_is_gone_left_is_removed_and_nothing_else() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.clock.sleep(20)
        template = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "spec": {"spec": {"devices": {"requests": []}}},
        }
        left = {"name": "left", "namespace": "default", "labels": {LABEL: "gone"}, "finalizers": [FINALIZER]}
        await lab.apply({**template, "metadata": left})
        await lab.apply({**template, "metadata": {"name": "mine", "namespace": "default"}})
        await lab.api.patch(kind_of("Node"), "rack-0", {"metadata": {"labels": {LABEL: "gone"}}})
        await lab.apply(domain("train", "c"))
        await lab.clock.sleep(30)
        names = {t["metadata"]["name"] for t in await lab.all("ResourceClaimTemplate", "default")}
        assert names == {"c", "mine"}
        assert await lab.labelled() == {}

    run(scenario)
