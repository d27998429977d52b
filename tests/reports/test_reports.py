"""Problems that people reported in public: does Dragoman place, refuse and explain them right?

The files stand in ../shared/cases/reports beside the checkout; without them the tests are skipped by name. Facts are
compared, not sentences, and once more with all names changed by a seed (stems change, numbers behind them stay).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli.main import main

FOLDER = Path(__file__).parents[2].parent / "shared" / "cases" / "reports"
SEEDS = (0, 1, 2)
"""0: as written."""

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/cases/reports is not there")

Docs = list[dict[str, Any]]


class Case:
    """What a file must come to. places: pod to node and devices, None for no place. told: object to facts.

    refused: facts of what the API server refuses. flags: of the command line. change: of the documents, before names are changed; may give more facts.
    """

    def __init__(
        self,
        places: dict[str, tuple[str, list[str]] | None] | None = None,
        reported: dict[str, list[str]] | None = None,
        flags: tuple[str, ...] = (),
        refused: tuple[str, ...] = (),
        change: Callable[[Docs, random.Random], dict[str, list[str]]] | None = None,
    ) -> None:
        self.places = places or {}
        self.reported = reported or {}
        self.flags = flags
        self.refused = refused
        self.change = change


def one_too_many(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """Other numbers of devices, always one short."""
    have = rng.randint(5, 31)
    for doc in docs:
        if doc["kind"] == "ResourceSlice":
            doc["spec"]["devices"] = doc["spec"]["devices"][:have]
        if doc["kind"] == "ResourceClaim":
            doc["spec"]["devices"]["requests"][0]["exactly"]["count"] = have + 1
    return {"pod/p": [f"{have + 1} devices of class any", f"{have} devices match", f"ask for {have}"]}


def other_broken_nic(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """Another root lacks a NIC."""
    for doc in docs:
        if doc["kind"] == "ResourceSlice" and doc["spec"]["driver"] == "nic.example.com":
            root = f"pci{rng.randint(0, 3)}"
            whole = [f"pci{i // 2}" for i in range(8)]
            whole.remove(root)
            for device, value in zip(doc["spec"]["devices"], whole, strict=True):
                device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"] = value
            return {"pod/p": [f"{root} has 2 gpu, 1 nic"]}
    return {}


def other_priorities(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """The least important pod is another one."""
    low = rng.randint(-100, 100)
    for doc in docs:
        if doc["kind"] == "Pod":
            doc["spec"]["priority"] = {"low": low, "mid": low + 7, "high": low + 1000}[doc["metadata"]["name"]]
    return {"pod/high": [f"default/low (priority {low})"]}


def alone(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """One pod at a time, as upstream does: no gang."""
    for doc in docs:
        if doc["kind"] == "Pod":
            del doc["metadata"]["labels"]
    return {}


def without_slices(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """After the kubelet wiped the slices: one pod was bound before, one comes later."""
    docs[:] = [doc for doc in docs if doc["kind"] != "ResourceSlice"]
    for doc in docs:
        if doc["kind"] == "Pod" and doc["metadata"]["name"] == "early":
            doc["metadata"]["uid"] = "u-early"
            doc["spec"]["nodeName"] = "node-a"
            claim = "early-g-made"
            doc["status"] = {"phase": "Pending", "resourceClaimStatuses": [{"name": "g", "resourceClaimName": claim}]}
    result = {"request": "g", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
    docs.append(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": "early-g-made",
                "namespace": "default",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "early", "uid": "u-early", "controller": True}
                ],
            },
            "spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {
                "reservedFor": [{"resource": "pods", "name": "early", "uid": "u-early"}],
                "allocation": {"devices": {"results": [result]}},
            },
        }
    )
    docs.append(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "early.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "early", "uid": "u-early"},
            "reason": "FailedPrepareDynamicResources",
            "message": "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.example.com is not registered",
            "firstTimestamp": "2026-01-01T00:00:10Z",
            "lastTimestamp": "2026-01-01T00:01:00Z",
            "count": 5,
        }
    )
    return {}


ANY_NODE = "node-a"
CASES: dict[str, Case] = {
    "01-cel-missing-attribute-one-node": Case(
        {"default/train": ("node-b", ["gpu-0"])},
        {"pod/train": ["device class gpu", "selector 0", "gpu.example.com/type", "2 of 2 devices", "node-a"]},
    ),
    "02-memory-is-capacity-not-attribute": Case(
        {"default/wrong": None, "default/ok": ("node-a", ["gpu-0"])},
        {
            "pod/wrong": [
                "device class big",
                "memory",
                "1 of 1 device",
                "device.capacity['gpu.example.com'].memory",
            ]
        },
    ),
    "04-list-matchattribute-backtracking": Case(
        {"default/p": ("node-a", ["dev1", "dev3", "dev4"])}, flags=("--feature-gates", "DRAListTypeAttributes=true")
    ),
    "06-gang-whole-vs-half": Case(
        {"default/w-0": ("node-a", ["half-1"]), "default/w-1": ("node-a", ["half-2"])},
    ),
    "06-gang-whole-vs-half alone": Case(
        {"default/w-0": ("node-a", ["whole"]), "default/w-1": None},
        {"pod/w-1": ["card-0", "used up", "whole", "default/w-0", "half-2 for r/half instead of whole for r/whole"]},
        change=alone,
    ),
    "09-all-mode-multi-node-pool": Case({"default/p": ("node-a", ["s0", "s1"])}),
    "11-template-slice-count-zero": Case(
        {"default/p": None},
        {"pod/p": ["template-node", "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"]},
        refused=("ResourceSlice", "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
    ),
    "12-ask-32-have-31": Case({"default/p": None}, {"pod/p": ["node-a", "class any"]}, change=one_too_many),
    "14-admin-access-distinct-devices": Case(
        {"gpu-admin/user": ("node-a", ["gpu-0"]), "gpu-admin/monitor": ("node-a", ["gpu-0", "gpu-1"])}
    ),
    "16-consumable-rounding-overflow": Case(
        {"default/p": None}, {"pod/p": ["9223372036854775807", "nic.example.com/bandwidth", "nic-0", "4Gi", "node-a"]}
    ),
    "17-shared-use-blocks-whole-card": Case(
        {"default/a": ("node-a", ["share-0"]), "default/b": None}, {"pod/b": ["whole-0", "card-0/slots", "1 of 2 left"]}
    ),
    "19-matchattribute-not-published-by-other-driver": Case(
        {"default/p": None},
        {
            "pod/p": [
                "resource.kubernetes.io/pcieRoot",
                "no device of driver nic.example.com publishes it",
                "nic.example.com/pcie",
                "4 of class gpu and 1 of class nic",
            ]
        },
    ),
    "20-mig-fragmentation": Case(
        {"default/big": None},
        {
            "pod/big": [
                "profile half",
                "0-3 or 4-7",
                "free are 2, 3, 4, 6, 7 (5 of 8)",
                "fragmented, not full",
                "s5 to s2",
                "fits on node-a with half-4",
            ]
        },
    ),
    "23-mixed-device-plugin-and-dra-nodes": Case(
        {"default/p1": ("legacy", []), "default/p2": ("dra", ["gpu-0"]), "default/p3": None},
        {
            "pod/p3": [
                "legacy: 1 of example.com/gpu asked for, 0 of 1 free",
                "dra: ",
                "class gpu",
                "1 device matches, 0 of them free",
            ]
        },
    ),
    "25-completed-pod-frees-devices": Case({}),
    "26-zombie-claim-finalizer": Case(
        reported={
            "claim/zombie": [
                "resource.kubernetes.io/delete-protection",
                "still reserved for pod trainer-0 (uid u-gone)",
                "does not exist",
                "gpu-3 of pool node-b stays blocked",
            ]
        },
        flags=("-n", "batch"),
    ),
    "31-noexecute-toleration-copied": Case(
        {"default/plain": None, "default/diag": ("node-a", ["gpu-0"])},
        {"pod/plain": ["gpu-0", "example.com/xid=79:NoExecute, not tolerated"]},
    ),
    "35-preemption": Case(
        {"default/mid": ("node-a", ["gpu-0"]), "default/low": ("node-a", ["gpu-1"]), "default/high": None},
        {"pod/high": ["would fit if default/low", "were removed; preemption for DRA devices is off"]},
        change=other_priorities,
    ),
    "38-driver-gone-window": Case(
        {"default/late": None},
        {
            "pod/early": [
                "bound to node-a, driver gpu.example.com not registered there since",
                "NodePrepareResources not called",
                "delete the pod to move it",
            ],
            "pod/late": ["no ResourceSlice of driver gpu.example.com for node-a"],
        },
        change=without_slices,
    ),
    "39-gang-shares-one-claim": Case({"default/g-0": ("node-a", ["gpu-0"]), "default/g-1": ("node-a", ["gpu-0"])}),
    "44-eight-pairs-seven-nics": Case(
        {"default/p": None},
        {"pod/p": ["8 gpu+nic pairs wanted", "7 devices of class nic on node-a", "at most 7 pairs"]},
        change=other_broken_nic,
    ),
    "50-four-part-driver-version": Case(
        {"default/p": None},
        {"pod/p": ["driverVersion", "6.19.14.31400000", "node-a"]},
        refused=("spec.devices[0].attributes[driverVersion].version", "6.19.14.31400000", "semver.org"),
    ),
    "59-admin-access-namespace-label": Case(
        {"serving/requester": ("node-a", ["gpu-0"]), "serving/launcher": None},
        {"pod/launcher": ["resource.kubernetes.io/admin-access: true", "namespace"]},
        refused=("ResourceClaimTemplate", "all-admin", "spec.spec.devices.requests[0].adminAccess: Forbidden"),
    ),
}

ELSEWHERE: dict[str, str] = {
    "28-template-swapped-after-quota": "needs ResourceQuota with charges for generated claims",
    "29-quota-all-mode-worst-case": "needs ResourceQuota (worst case of All)",
    "32-taint-evicts-extended-resource-pods": "needs the eviction controller over time; simulate --taint is tested in tests/cli",
    "34-force-delete-and-recreate": "needs kubelet faults; the SDK's side is tested in tests/node and tests/kubelet",
    "41-migrate-extended-resource-deployment": "needs migrate",
    "42-migrate-v1beta1-slice-and-claim": "needs migrate and an API server that serves v1 only",
}


def test_every_report_is_checked_or_says_what_is_missing() -> None:
    files = {path.stem for path in FOLDER.glob("*.yaml")}
    assert files == {name.partition(" ")[0] for name in CASES} | set(ELSEWHERE)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_reports_that_need_parts_not_here(name: str) -> None:
    pytest.skip(ELSEWHERE[name])


# ---- names changed by a seed

WORDS = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")
KEPT = {"default", "cpu", "pods", "batch"}
NAMING = ("name", "driver", "string", "counterSet", "nodeName", "deviceClassName")
RENAMED_KEYS = {"attributes", "capacity", "counters", "limits", "allocatable"}


class Names:
    """Words that a file makes up, each with another word; the number at the end of a word stays."""

    def __init__(self, docs: Docs, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.stems: dict[str, str] = {}
        for word in _made_up(docs):
            self._learn(word)

    def _learn(self, word: str) -> None:
        stem, _ = _cut(word)
        if not self.seed or word in KEPT or stem in self.stems:
            return
        letters = "".join(self.rng.choice("bcdfghjkmnpqrstvwxz") for _ in range(5))
        tail = "-" if stem.endswith("-") else ""
        self.stems[stem] = f"{letters}.example.org" if "." in stem else f"{letters}{tail}"

    def word(self, word: str) -> str:
        stem, number = _cut(word)
        return self.stems.get(word) or (f"{self.stems[stem]}{number}" if stem in self.stems else word)

    def text(self, text: str) -> str:
        """Every made-up word of a text changed."""
        return WORDS.sub(lambda found: _dotted(found[0], self), text)

    def docs(self, value: Any, key: str = "", *, keys: bool = False) -> Any:
        if isinstance(value, dict):
            return {
                (self.text(k) if keys else k): self.docs(
                    v, k, keys=k in RENAMED_KEYS or (key == "capacity" and k == "requests")
                )
                for k, v in value.items()
            }
        if isinstance(value, list):
            return [self.docs(item, key) for item in value]
        if isinstance(value, str) and key not in (
            "kind",
            "apiVersion",
            "image",
            "effect",
            "operator",
            "phase",
            "allocationMode",
            "reason",
        ):
            return self.text(value)
        return value


def _dotted(word: str, names: Names) -> str:
    """The word, or its head: `device.driver` is none of ours, `x-0.` ends with a full stop."""
    if names.word(word) != word:
        return names.word(word)
    parts = word.split(".")
    if parts[0] == "device":
        return ".".join([parts[0], *(names.word(part) for part in parts[1:])])
    return ".".join(names.word(part) for part in parts)


def _cut(word: str) -> tuple[str, str]:
    stem = word.rstrip("0123456789")
    return (stem, word[len(stem) :]) if stem else (word, "")


def _made_up(value: Any, key: str = "") -> Iterator[str]:
    """Names of objects, drivers, devices, requests, attributes and counters, values of attributes."""
    if isinstance(value, dict):
        for k, v in value.items():
            is_amount = key == "capacity" and isinstance(v, dict) and "value" in v
            if (key in ("attributes", "counters") or is_amount) and "/" not in k:
                yield k
            if k in NAMING and isinstance(v, str) and re.fullmatch(WORDS, v):
                yield v
            yield from _made_up(v, k)
    elif isinstance(value, list):
        for item in value:
            yield from _made_up(item, key)


# ---- the check


def read(name: str) -> Docs:
    file = FOLDER / f"{name.partition(' ')[0]}.yaml"
    return [doc for doc in yaml.safe_load_all(file.read_text()) if doc]


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    main(list(args))
    return capsys.readouterr().out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_report(name: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, docs = CASES[name], read(name)
    more = case.change(docs, random.Random(seed)) if case.change is not None else {}
    names = Names(docs, seed)
    file = tmp_path / "report.yaml"
    file.write_text(yaml.safe_dump_all(names.docs(docs)))
    flags = [flag for flag in case.flags if flag not in ("-n", "batch")]
    found = json.loads(ran(capsys, "simulate", "-f", str(file), "-o", "json", *flags))
    assert bool(found["errors"]) == bool(case.refused)
    for fact in case.refused:
        assert names.text(fact) in json.dumps(found["errors"]).replace('\\"', '"'), fact
    pods = {f"{pod['namespace']}/{pod['name']}": pod for pod in found["pods"]}
    for key, place in case.places.items():
        pod = pods[names.text(key)]
        assert (pod["node"], placed(pod)) == expected(place, names), key
    for key, facts in {**case.reported}.items():
        wanted = [names.text(fact) for fact in (*facts, *more.get(key, []))]
        kind, _, word = key.partition("/")
        about = f"{kind}/{names.text(word)}"
        text = ran(capsys, "explain", about, "-f", str(file), *case.flags)
        reported = json.dumps(json.loads(ran(capsys, "explain", about, "-f", str(file), "-o", "json", *case.flags)))
        for fact in wanted:
            assert fact in text, f"{about}: {fact!r} is not in:\n{text}"
        for word in (word for fact in wanted for word in WORDS.findall(fact) if word in names.stems.values()):
            assert word in reported, f"{about}: {word!r} is not in the JSON"


def expected(place: tuple[str, list[str]] | None, names: Names) -> tuple[str | None, list[str]]:
    return (None, []) if place is None else (names.text(place[0]), [names.text(device) for device in place[1]])


def placed(pod: dict[str, Any]) -> list[str]:
    if pod["node"] is None:
        return []
    given = [claim["allocation"] for claim in pod["claims"] if claim["allocation"] is not None]
    return [result["device"] for allocation in given for result in allocation["devices"]["results"]]
