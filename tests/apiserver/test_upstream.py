"""Our apply, tracking and strategic patches against upstream's own code, on random histories.

Needs the peer of bench/upstream_api: DRAGOMAN_TEST_UPSTREAM_API=PATH, or what `make peers` built; skipped where there is
none.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from peer import peer as built_peer

from dragoman.apiserver.apply import ApplyConflict, apply, track
from dragoman.apiserver.patch import strategic_patch

HISTORIES = 300
NOW = "2026-01-01T00:00:00Z"

if not built_peer("api"):
    pytest.skip("no peer: `make peers`, or DRAGOMAN_TEST_UPSTREAM_API=PATH", allow_module_level=True)

pytestmark = pytest.mark.slow

Object = dict[str, Any]


class Peer:
    """Upstream's code behind a pipe: one JSON line in, one out."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([built_peer("api")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    it = Peer()
    yield it
    it.close()


class Maker:
    """Small random objects, few names and values, so that managers meet."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.update = False

    def maybe(self, **members: Any) -> Object:
        """Some of the members, each made by its function; empty ones are left out."""
        out = {}
        for name, make in members.items():
            if self.draw.random() < 0.45:
                value = make()
                if value not in (None, [], {}):
                    out[name] = value
        return out

    def value(self) -> str:
        return self.draw.choice("12")

    def map(self) -> dict[str, str]:
        return {key: self.value() for key in "ab" if self.draw.random() < 0.6}

    def keyed(self, key: str, values: Any, make: Any) -> list[Object]:
        chosen = [value for value in values if self.draw.random() < 0.5]
        self.draw.shuffle(chosen)
        return [{key: value, **make()} for value in chosen]

    def some(self, *values: str) -> list[str]:
        return [value for value in values if self.draw.random() < 0.5]

    def metadata(self) -> Object:
        owner = {"apiVersion": "v1", "kind": "Node"}
        return {
            "name": "x",
            **self.maybe(
                labels=self.map,
                annotations=self.map,
                finalizers=lambda: self.some("x/a", "x/b", "x/c"),
                ownerReferences=lambda: self.keyed("uid", ("u1", "u2"), lambda: {**owner, "name": self.value()}),
            ),
        }

    def container(self) -> Object:
        out = self.maybe(
            image=self.value,
            args=lambda: [self.value()],
            env=lambda: self.keyed("name", "ABC", lambda: self.maybe(value=self.value)),
            ports=lambda: self.keyed(
                "containerPort", (80, 81), lambda: self.maybe(protocol=lambda: "UDP", name=self.value)
            ),
            volumeMounts=lambda: self.keyed("mountPath", ("/a", "/b"), lambda: {"name": self.value()}),
        )
        # Upstream's typed containers always have resources.
        return {**out, "resources": {}} if self.update else out

    def pod_spec(self) -> Object:
        return {
            "containers": self.keyed("name", "cde", self.container) or [{"name": "c"}],
            **self.maybe(
                nodeSelector=self.map,
                tolerations=lambda: [{"key": self.value()}],
                resourceClaims=lambda: self.keyed("name", "gh", lambda: self.maybe(resourceClaimName=self.value)),
                topologySpreadConstraints=lambda: self.keyed(
                    "topologyKey", "zh", lambda: {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                ),
            ),
        }

    def pod(self) -> Object:
        conditions = {"lastTransitionTime": NOW, "lastProbeTime": NOW}
        return self.maybe(
            spec=self.pod_spec,
            status=lambda: self.maybe(
                phase=self.value,
                conditions=lambda: self.keyed("type", "RI", lambda: {"status": self.value(), **conditions}),
            ),
        )

    def deployment(self) -> Object:
        spec = self.maybe(
            replicas=lambda: self.draw.randint(1, 3),
            paused=lambda: True,
            strategy=lambda: self.maybe(type=self.value),
            template=lambda: self.maybe(metadata=lambda: self.maybe(labels=self.map), spec=self.pod_spec),
        )
        return {"spec": {"selector": {"matchLabels": {"a": self.value()}}, **spec}}

    def claim(self) -> Object:
        requests = [{"name": self.value(), "exactly": {"deviceClassName": self.value()}}]
        return {
            "spec": {"devices": {"requests": requests}},
            **self.maybe(
                status=lambda: self.maybe(
                    allocation=lambda: {"devices": {"results": [{"request": "r", "device": self.value()}]}},
                    reservedFor=lambda: self.keyed("uid", "12", lambda: {"resource": "pods", "name": self.value()}),
                )
            ),
        }

    def config_map(self) -> Object:
        return self.maybe(data=self.map, immutable=lambda: True)

    def object(self) -> tuple[tuple[str, str, str], Object]:
        gvk, make = self.draw.choice(
            [
                (("", "v1", "Pod"), self.pod),
                (("apps", "v1", "Deployment"), self.deployment),
                (("resource.k8s.io", "v1", "ResourceClaim"), self.claim),
                (("", "v1", "ConfigMap"), self.config_map),
            ]
        )
        self.make = make
        return gvk, self.again(gvk)

    def again(self, gvk: tuple[str, str, str]) -> Object:
        api_version = f"{gvk[0]}/{gvk[1]}" if gvk[0] else gvk[1]
        return {"apiVersion": api_version, "kind": gvk[2], "metadata": self.metadata(), **self.make()}

    def step(self, gvk: tuple[str, str, str]) -> Object:
        self.update = self.draw.random() < 0.35
        body = self.again(gvk)
        if not self.update:
            body.pop("status", None)  # the peer does not reset status
        op = "update" if self.update else "apply"
        return {"Op": op, "Manager": self.draw.choice("mno"), "Force": self.draw.random() < 0.6, "Object": body}


def stripped(value: Any) -> Any:
    """Without what upstream's typed values add: nulls, empty members, the uid of what exists."""
    if isinstance(value, dict):
        out = {name: stripped(entry) for name, entry in value.items() if (name, entry) != ("uid", "u")}
        return {name: entry for name, entry in out.items() if entry not in (None, {}, [], "")}
    return [stripped(entry) for entry in value] if isinstance(value, list) else value


def bare(obj: Object) -> Any:
    out = {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "managedFields"}}
    return stripped(out)


def existing(obj: Any, fields: Object) -> Object:
    """Fields that the object has: upstream leaves null members behind, and their owners with them."""
    out: Object = {}
    for step, below in fields.items():
        if step.startswith("f:") and (obj is None or isinstance(obj, dict)):
            value = (obj or {}).get(step[2:])
            kept = existing(value, below)
            if kept or (not below and value is not None):
                out[step] = kept
        else:
            out[step] = below
    return out


def owners(obj: Object) -> Any:
    entries = obj["metadata"].get("managedFields") or []
    kept = [
        (e["manager"], e["operation"], existing(bare(obj), e["fieldsV1"]))
        for e in sorted(entries, key=lambda e: e["manager"] + e["operation"])
    ]
    return [entry for entry in kept if entry[2]]


@pytest.mark.parametrize("seed", range(4))
def test_histories_of_writes_end_as_upstream_ends_them(peer: Peer, seed: int) -> None:
    maker = Maker(seed)
    conflicts = 0
    for _ in range(HISTORIES):
        gvk, _ = maker.object()
        steps = [maker.step(gvk) for _ in range(maker.draw.randint(1, 6))]
        live = None
        for step, theirs in zip(steps, peer.ask({"GVK": gvk, "Steps": steps}), strict=True):
            body = step["Object"]
            try:
                if step["Op"] == "apply":
                    ours = apply(live, body, step["Manager"], step["Force"], gvk, "", NOW)
                else:
                    ours = track(live, body, step["Manager"], "Update", gvk, "", NOW)
            except ApplyConflict as refused:
                conflicts += 1
                fields = {(cause["field"], cause["message"]) for cause in refused.causes}
                known = {(cause["field"], cause["message"]) for cause in theirs.get("causes", [])}
                assert fields == {cause for cause in known if not is_left_behind(cause[0])}, steps
                break
            if "error" in theirs:
                assert all(is_left_behind(cause["field"]) for cause in theirs["causes"]), (steps, theirs)
                break
            assert bare(ours) == bare(theirs), steps
            assert owners(ours) == owners(theirs), steps
            live = ours
    assert conflicts > 10, "histories without conflicts show little"


def is_left_behind(field: str) -> bool:
    """Upstream keeps owners of emptied maps and lists (null), and lets them conflict when something comes back."""
    return field in (
        ".data",
        ".metadata.labels",
        ".metadata.annotations",
        ".metadata.finalizers",
        ".metadata.ownerReferences",
    )


@pytest.mark.parametrize("seed", range(4))
def test_patches_of_kubectl_apply_do_what_they_do_upstream(peer: Peer, seed: int) -> None:
    maker = Maker(seed)
    for _ in range(HISTORIES):
        gvk, original = maker.object()
        modified, current = maker.again(gvk), maker.again(gvk)
        theirs = peer.ask({"GVK": gvk, "Original": original, "Modified": modified, "Current": current})
        ours = strategic_patch(current, theirs["patch"], gvk)
        assert unordered(ours) == unordered(theirs["result"]), (current, theirs["patch"])


def unordered(value: Any) -> Any:
    """Without directives that upstream leaves in new objects; lists as sets, since upstream's order after deletions
    depends on shared memory."""
    if isinstance(value, dict):
        return {name: unordered(e) for name, e in value.items() if e is not None and not name.startswith("$")}
    if isinstance(value, list):
        kept = [entry for entry in value if not (isinstance(entry, dict) and "$patch" in entry)]
        return sorted((unordered(entry) for entry in kept), key=lambda entry: json.dumps(entry, sort_keys=True))
    return value
