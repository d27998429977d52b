"""Who decides a pod, is it seen to run, and do two give out one driver's devices?"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli.main import main
from dragoman.inspect.schedulers import scheduler_info, shared_drivers, written_by
from dragoman.testing.build import device as made_device
from dragoman.testing.build import device_class, manifest, node, pod, pool, request, snapshot_of, template

OVEN = "oven.kiln.example"
BASE = [
    node("shed-1"),
    device_class("oven", driver=OVEN),
    pool("shed-1", [made_device(f"oven-{i}") for i in range(4)], node="shed-1", driver=OVEN),
    template("one", request(device_class="oven")),
]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def potter(name: str, scheduler: str = "", **rest: Any) -> dict[str, Any]:
    return pod(name, templates=["one"], **({"schedulerName": scheduler} if scheduler else {}), **rest)


def lease(name: str, namespace: str = "kube-system", renewed: str = "2026-05-01T11:59:55.000000Z") -> dict[str, Any]:
    spec = {"holderIdentity": "host_1", "renewTime": renewed, "leaseDurationSeconds": 15}
    return manifest("Lease", name, spec=spec, metadata={"namespace": namespace})


def event(component: str) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "old", "namespace": "default"}
    source = {"component": component}
    return manifest("Event", "old.1", metadata={"namespace": "default"}, involvedObject=about, source=source)


def info(name: str, *objects: dict[str, Any], writers: dict[str, str] | None = None) -> Any:
    return scheduler_info(name, snapshot_of(*objects), writers or {}, visible=True)


def test_leases_and_events_say_who_runs() -> None:
    seen = written_by([lease("kube-scheduler"), lease("volcano", "vol")], [event("kiln-scheduler")])
    assert info("default-scheduler", writers=seen).evidence == "lease kube-system/kube-scheduler"
    assert info("volcano", writers=seen).evidence == "lease vol/volcano"
    assert info("kiln-scheduler", writers=seen).evidence == "an event about Pod old"
    assert info("yunikorn", writers=seen).evidence == ""


def test_a_lease_that_ran_out_says_nothing_of_a_live_cluster() -> None:
    old = lease("kube-scheduler", renewed="2026-05-01T10:00:00.000000Z")
    assert written_by([old], [], NOW) == {}
    assert "kube-scheduler" in written_by([lease("kube-scheduler")], [], NOW)


def test_pods_say_who_runs() -> None:
    own = pod("kai-scheduler-7d9", namespace="kai", status={"phase": "Running"})
    assert info("kai-scheduler", own).evidence == "pod kai/kai-scheduler-7d9"
    bound = potter("p", "kiln-scheduler", nodeName="shed-1")
    assert info("kiln-scheduler", *BASE, bound).evidence == "pod default/p, which it has bound"


def test_known_names_and_near_ones() -> None:
    assert info("kai-scheduler").title == "KAI Scheduler"
    assert info("kia-scheduler").near == "kai-scheduler"
    assert info("default-schedular").near == "default-scheduler"
    assert info("wardrobe").near == ""


def test_two_schedulers_on_one_driver() -> None:
    pods = [potter("a"), potter("b", "volcano"), potter("c", "nobody-scheduler")]
    (shared,) = shared_drivers(snapshot_of(*BASE, *pods), {})
    assert (shared.driver, shared.schedulers) == (OVEN, ("default-scheduler", "volcano"))
    (shared,) = shared_drivers(snapshot_of(*BASE, *pods), {"nobody-scheduler": "an event"})
    assert len(shared.schedulers) == 3
    other = [device_class("cart", driver="cart.example"), template("two", request(device_class="cart"))]
    apart = [potter("a"), pod("b", templates=["two"], schedulerName="volcano")]
    assert shared_drivers(snapshot_of(*BASE, *other, *apart), {}) == ()
    done = [potter("a"), potter("b", "volcano", status={"phase": "Succeeded"})]
    assert shared_drivers(snapshot_of(*BASE, *done), {}) == ()


def ran(tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], *args: str) -> Any:
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    main([*args, "-f", str(file)])
    out = capsys.readouterr().out
    return json.loads(out) if "json" in args else out


def test_every_command_names_the_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [*BASE, potter("bowl"), potter("tile", "yunikorn"), potter("lost", "kiln-sked")]
    text = ran(tmp_path, capsys, objects, "simulate")
    assert "pod default/tile: scheduler yunikorn (Apache YuniKorn) has to run for this" in text
    assert "nobody with this name has written an event or lease here" in text
    assert f"give out devices of the same driver {OVEN}" in text
    found = ran(tmp_path, capsys, objects, "simulate", "-o", "json")
    assert [one.get("scheduler", {}).get("name") for one in found["pods"]] == [None, "yunikorn", "kiln-sked"]
    assert found["sharedDrivers"][0]["schedulers"] == ["default-scheduler", "yunikorn"]
    about = ran(tmp_path, capsys, objects, "explain", "pod/lost")
    assert "scheduler kiln-sked, which is not known here, has to run for this" in about
    everything = ran(tmp_path, capsys, objects, "explain")
    assert "pod default/lost: scheduler kiln-sked" in everything
    lints = ran(tmp_path, capsys, objects, "lint")
    assert "[TwoSchedulers] (Pod default/tile" in lints
    assert "[UnknownScheduler] (Pod default/lost" in lints


def test_a_scheduler_that_was_seen_is_said_to_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [*BASE, potter("tile", "kiln-sked"), event("kiln-sked")]
    text = ran(tmp_path, capsys, objects, "simulate")
    assert "scheduler kiln-sked, which is not known here, decides" in text
    assert "an event about Pod old" in text


def test_the_usual_scheduler_is_said_to_be_missing_only_where_leases_are_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "scheduler" not in ran(tmp_path, capsys, [*BASE, potter("bowl")], "simulate")
    seen = [*BASE, potter("bowl"), lease("kube-controller-manager")]
    assert "scheduler default-scheduler (kube-scheduler): nobody" in ran(tmp_path, capsys, seen, "simulate")
    assert "scheduler" not in ran(tmp_path, capsys, [*seen, lease("kube-scheduler")], "simulate")


def test_kueue_admits_before_any_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queued = potter("bowl", metadata={"labels": {"kueue.x-k8s.io/queue-name": "kilns"}})
    text = ran(tmp_path, capsys, [*BASE, queued], "simulate")
    assert "pod default/bowl: Kueue admits it first (queue kilns)" in text
