"""`dragoman simulate`: output, exit status, errors, and the flags that change the state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli.main import main
from dragoman.errors import Invalid, NotFound
from dragoman.testing.build import DRIVER, claim, device_class, gpus, manifest, node, pod, template


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes manifests to a file and returns its name."""

    def made(*manifests: dict[str, Any], name: str = "world.yaml") -> str:
        file = tmp_path / name
        file.write_text(yaml.safe_dump_all(manifests))
        return str(file)

    return made


BASE = [node("a"), gpus("a", 2), device_class()]
BUSY = [
    claim(
        "held",
        status={
            "allocation": {
                "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}]}
            },
            "reservedFor": [{"resource": "pods", "name": "u", "uid": "uid-u"}],
        },
    ),
    pod("u", "held", nodeName="a", status={"phase": "Running"}),
]


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    status = main(["simulate", *args, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_taint_for_no_device_is_reported(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    taint = f"{DRIVER}/a/gpu-9=k:NoExecute"
    assert main(["simulate", "-f", write(*BASE, *BUSY), "--taint", taint]) == 0
    assert capsys.readouterr().out == f"no device is tainted by {taint}\n"


def test_places_and_status(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, claim("c"), pod("p", "c"))
    assert main(["simulate", "-f", file]) == 0
    assert capsys.readouterr().out == "POD         NODE   DEVICES\ndefault/p   a      c: gpu-0 (claim c)\n"
    status, reported = ran(capsys, "-f", write(*BASE, claim("c", count=3), pod("p", "c")))
    assert status == 1
    (entry,) = reported["pods"]
    assert entry["node"] is None
    assert entry["refusal"]["conflict"]["requests"][0]["requested"] == 3
    assert [hint["kind"] for hint in entry["refusal"]["hints"]] == ["ChangeCount"]
    assert entry["refusal"]["hints"][0]["verifiedWith"] == {
        "node": "a",
        "devices": [f"{DRIVER}/a/gpu-0", f"{DRIVER}/a/gpu-1"],
    }


def test_what_cannot_be_read_stands_in_errors_and_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: 3}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: 7\n"
    )
    with pytest.raises(Invalid, match="must be a string"):
        main(["simulate", "-f", str(file), "-o", "json"])
    reported = json.loads(capsys.readouterr().out)
    assert reported["pods"] == []
    assert [(e["file"], e["document"], e["field"]) for e in reported["errors"]] == [
        (str(file), 1, "metadata.name"),
        (str(file), 2, "spec"),
    ]


def test_one_more_node_like_another(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, claim("c", count=2), pod("p", "c"))
    assert ran(capsys, "-f", file)[0] == 1
    status, reported = ran(capsys, "-f", file, "--add-node", "shape-of a")
    assert status == 0
    assert reported["pods"][0]["node"] == "a-new"
    assert reported["changes"]["addedNodes"] == ["a-new"]


def test_one_more_node_from_a_file(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    more = write(node("b"), gpus("b", 4), name="more.yaml")
    file = write(*BASE, claim("c", count=3), pod("p", "c"))
    status, reported = ran(capsys, "-f", file, "--add-node", more)
    assert (status, reported["pods"][0]["node"]) == (0, "b")
    with pytest.raises(Invalid, match="exists already"):
        main(["simulate", "-f", file, "--add-node", write(node("a"), name="same.yaml")])


def test_without_a_node_its_pods_are_placed_again(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, node("b"), gpus("b", 1))
    status, reported = ran(capsys, "-f", file, "--remove-node", "a")
    assert status == 0
    assert [(pod["name"], pod["node"]) for pod in reported["pods"]] == [("u", "b")]


def test_without_a_pod_there_is_room(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, claim("c", count=2), pod("p", "c"))
    status, reported = ran(capsys, "-f", file, "--delete", "u")
    assert status == 0
    assert reported["changes"]["deletedPods"] == ["default/u"]
    with pytest.raises(NotFound, match="near: default/u"):
        main(["simulate", "-f", file, "--delete", "uu"])


RULE = manifest(
    "DeviceTaintRule", "r", spec={"deviceSelector": {"pool": "a"}, "taint": {"key": "k", "effect": "NoExecute"}}
)


@pytest.mark.parametrize("as_file", [True, False])
def test_who_would_be_displaced_by_a_taint(as_file: bool, write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    taint = write(RULE, name="rule.yaml") if as_file else f"{DRIVER}/a/*=k:NoExecute"
    status, reported = ran(capsys, "-f", write(*BASE, *BUSY), "--taint", taint)
    assert status == 1
    assert [(e["name"], e["node"], e["device"]) for e in reported["displaced"]] == [("u", "a", f"{DRIVER}/a/gpu-0")]
    (entry,) = reported["pods"]
    assert (entry["name"], entry["node"]) == ("u", None)
    assert "DeviceTainted" in {reason["code"] for reason in entry["nodes"][0]["reasons"]}


def test_pods_with_a_claim_for_extended_resources_are_displaced_too(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "u", "uid": "uid-u", "controller": True}
    held = {**BUSY[0], "metadata": {**BUSY[0]["metadata"], "ownerReferences": [owner]}}
    busy = [held, pod("u", extended={"e.com/g": "1"}, nodeName="a")]
    busy[1]["status"] = {
        "phase": "Running",
        "extendedResourceClaimStatus": {"resourceClaimName": "held", "requestMappings": []},
    }
    reported = ran(capsys, "-f", write(*BASE, *busy), "--taint", f"{DRIVER}/a/gpu-0=k:NoExecute")[1]
    assert [entry["name"] for entry in reported["displaced"]] == ["u"]


@pytest.mark.parametrize("text", ["nonsense", "a/b=k:NoExecute", "d/p/x=k", "d/p/x=k:Never"])
def test_a_taint_that_means_nothing(text: str, write: Any) -> None:
    with pytest.raises(Invalid, match=r"--taint"):
        main(["simulate", "-f", write(*BASE), "--taint", text])


def deployment(replicas: int, **spec: Any) -> dict[str, Any]:
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, **spec}
    inner = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", templates=["t"])["spec"]}
    return manifest("Deployment", "web", namespace="default", spec={**body, "template": inner})


def dump(*objects: dict[str, Any]) -> dict[str, Any]:
    """As `kubectl get -o yaml` prints a cluster."""
    items = [{**one, "metadata": {"uid": f"u-{i}", **one["metadata"]}} for i, one in enumerate(objects)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def test_a_later_file_changes_an_object_as_kubectl_apply_would(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = write(dump(*BASE, template("t"), deployment(1)), name="dump.yaml")
    status, reported = ran(capsys, "-f", recorded, "-f", write(deployment(3), name="more.yaml"))
    assert status == 1
    assert [bool(entry["node"]) for entry in reported["pods"]] == [True, True, False]
    status, reported = ran(capsys, "-f", recorded, "-f", write(deployment(2), name="more.yaml"))
    assert (status, len(reported["pods"]), reported["errors"]) == (0, 2, [])


def test_a_change_that_a_server_refuses_is_an_error_and_the_object_stays_as_it_was(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = write(dump(*BASE, claim("c"), pod("p", "c"), template("t"), deployment(1)), name="dump.yaml")
    moved = deployment(1, selector={"matchLabels": {"app": "other"}})
    status, reported = ran(capsys, "-f", recorded, "-f", write(claim("c", count=2), moved, name="more.yaml"))
    assert status == 1
    first, second = reported["errors"]
    assert first["file"].endswith("more.yaml")
    assert (first["document"], first["object"], first["field"]) == (1, "ResourceClaim default/c", "spec")
    assert first["message"].startswith('ResourceClaim.resource.k8s.io "c" is invalid: spec: Invalid value: ')
    assert first["message"].endswith(": field is immutable")
    assert "spec.selector: Invalid value: " in second["message"]
    assert len(reported["pods"]) == 2
    assert all(entry["node"] == "a" for entry in reported["pods"])


def test_an_object_of_another_version_than_the_clusters_is_refused(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = claim("c", metadata={"resourceVersion": "1"}), claim("c", metadata={"resourceVersion": "2"})
    files = (write(dump(*BASE, old), name="dump.yaml"), write(new, name="more.yaml"))
    status, reported = ran(capsys, "-f", files[0], "-f", files[1])
    (error,) = reported["errors"]
    assert status == 1
    assert "the object has been modified" in error["message"]


def test_what_was_applied_before_and_is_not_in_the_manifest_any_more_goes(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"unschedulable": True}}
    there = node("a", unschedulable=True)
    there["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(first)}
    recorded = write(dump(there, *BASE[1:], claim("c"), pod("p", "c")), name="dump.yaml")
    assert ran(capsys, "-f", recorded)[0] == 1
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    assert ran(capsys, "-f", recorded, "-f", write(bare, name="more.yaml"))[0] == 0


def test_a_job_with_a_generated_name_runs(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "night-", "namespace": "default"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}},
    }
    assert main(["simulate", "-f", write(node("n1"), job)]) == 0
    assert "default/night-" in capsys.readouterr().out


def test_the_same_object_twice_in_one_file_is_an_error(write: Any) -> None:
    with pytest.raises(Invalid, match="is already defined in"):
        main(["simulate", "-f", write(*BASE, claim("c"), claim("c"))])


def test_the_same_question_twice_gives_the_same_answer(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, *BUSY, claim("c", count=2), pod("p", "c"))
    assert ran(capsys, "-f", file) == ran(capsys, "-f", file)


# ---- what a server with these gates does not serve or drops


def unbound(one: dict[str, Any]) -> dict[str, Any]:
    """The object as a user writes it."""
    return {**one, "metadata": {key: value for key, value in one["metadata"].items() if key != "uid"}}


TEAM = manifest("PodGroup", "team", spec={"schedulingPolicy": {"gang": {"minCount": 3}}})
MEMBER = unbound(pod("m", templates=["one"], schedulingGroup={"podGroupName": "team"}))
ON = ("--feature-gates", "GenericWorkload=true")


def test_a_kind_of_a_gate_that_is_off_is_refused(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(*BASE, template("one"), TEAM, MEMBER)
    status, body = ran(capsys, "-f", file)
    assert status == 1
    (error,) = body["errors"]
    assert (error["object"], error["field"]) == ("PodGroup default/team", "kind")
    assert error["message"] == (
        "the server could not find the requested resource (post podgroups.scheduling.k8s.io): "
        "PodGroup needs feature gate GenericWorkload"
    )
    (warning,) = body["warnings"]
    assert (warning["object"], warning["field"]) == ("Pod default/m", "spec.schedulingGroup")
    assert [one["node"] for one in body["pods"]] == ["a"], "the pod is decided as the server takes it: alone"
    status, body = ran(capsys, "-f", file, *ON)
    assert (status, body["errors"], body["warnings"]) == (1, [], [])
    assert [one["node"] for one in body["pods"]] == [None]
    assert main(["explain", "pod/m", "-f", file]) == 1
    shown = capsys.readouterr().out
    assert "error: the API server would refuse this: the server could not find the requested resource" in shown
    assert "help: --feature-gates GenericWorkload=true" in shown


def test_a_kind_in_a_dump_says_that_its_gate_is_on(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given = [{**one, "metadata": {**one["metadata"], "uid": f"u-{i}"}} for i, one in enumerate([TEAM, MEMBER])]
    file = write(*BASE, template("one"), *given)
    _, body = ran(capsys, "-f", file)
    assert body["errors"] == []
    (warning,) = body["warnings"]
    assert (warning["object"], warning["field"]) == ("PodGroup default/team", "kind")
    assert ran(capsys, "-f", file, *ON)[1]["warnings"] == []


@pytest.mark.parametrize(
    ("gate", "field", "exactly"),
    [
        ("DRAConsumableCapacity", "capacity", {"capacity": {"requests": {"memory": "1Gi"}}}),
        ("DRADeviceTaints", "tolerations", {"tolerations": [{"operator": "Exists"}]}),
    ],
)
def test_a_field_of_a_gate_that_is_off_is_dropped_and_named(
    gate: str, field: str, exactly: dict[str, Any], write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = unbound(claim("c"))
    asked["spec"]["devices"]["requests"][0]["exactly"] |= exactly
    file = write(*BASE, asked, unbound(pod("p", "c")))
    status, body = ran(capsys, "-f", file, "--feature-gates", f"{gate}=false")
    assert (status, [one["node"] for one in body["pods"]]) == (0, ["a"])
    assert [(w["object"], w["field"].rpartition(".")[2]) for w in body["warnings"]] == [
        ("ResourceClaim default/c", field)
    ]
    assert gate in body["warnings"][0]["message"]
    assert ran(capsys, "-f", file)[1]["warnings"] == []


def test_a_manifest_may_change_how_a_deployment_of_the_dump_rolls_out(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
    spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": inner}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    there = manifest("Deployment", "d", spec={**spec, "strategy": rolling})
    there["metadata"]["uid"] = "u-d"
    dump = write(*BASE, there)
    change = write(unbound(manifest("Deployment", "d", spec={**spec, "strategy": {"type": "Recreate"}})), name="c.yaml")
    assert ran(capsys, "-f", dump, "-f", change)[1]["errors"] == []
    assert main(["lint", "-f", change, "--against", dump]) == 0
