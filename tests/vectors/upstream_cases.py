"""Random calls of the allocator with every feature, gates on and off, made from a seed. Same seed, same call."""

from __future__ import annotations

from random import Random
from typing import Any

from .allocator_calls import Case

FEATURES = (
    "AdminAccess",
    "CompatibilityGroups",
    "ConsumableCapacity",
    "DerivedAttributes",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "FractionalCapacityRange",
    "ListTypeAttributes",
    "OptionalNodeOperations",
    "PartitionableDevices",
    "PrioritizedList",
)
NEEDS = {"CompatibilityGroups": "PartitionableDevices", "FractionalCapacityRange": "ConsumableCapacity"}
CONTENTS = (
    "admin", "all", "binding", "bad pools", "capacity", "configs", "constraints", "counters", "derived", "errors",
    "groups", "held", "lists", "operations", "options", "per device", "regions", "selectors", "shares", "taints",
)  # fmt: skip
SMALL = {"pools": (1, 3), "devices": (1, 7), "claims": (1, 2), "requests": (1, 3)}
MIDDLE = {"pools": (1, 4), "devices": (3, 12), "claims": (1, 3), "requests": (1, 4)}
SHARE = "00000000-0000-4000-8000-{:012d}"
DRIVERS = ("a.example", "a.example", "b.example")
NODE = "node-1"
BROKEN = "device.attributes[device.driver].numa >"
"""A selector that does not compile."""


def random_case(seed: int) -> Case:
    """One call."""
    return _Maker(seed).case()


class _Maker:
    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.name = f"random-{seed}"
        # Cases in a row share their gates: the peer makes a new language environment when these change.
        gates = Random(seed // 50)
        self.features = {name: gates.random() < 0.85 for name in FEATURES}
        if gates.random() < 0.4:
            self.features = dict.fromkeys(FEATURES, True)
        for name, needed in NEEDS.items():
            self.features[name] &= self.features[needed]
        self.size = SMALL if self.draw.random() < 0.6 else MIDDLE
        self.contents = {name for name in CONTENTS if self.draw.random() < 0.3}
        if self.draw.random() < 0.8:
            self.contents.discard("errors")
        for content, gate, seldom in (
            ("admin", "AdminAccess", 0.2),
            ("capacity", "ConsumableCapacity", 0.2),
            ("options", "PrioritizedList", 0.2),
            ("groups", "CompatibilityGroups", 0.0),
            ("derived", "DerivedAttributes", 0.2),
            ("counters", "PartitionableDevices", 0.3),
        ):
            if not self.features[gate] and self.draw.random() >= seldom:
                self.contents.discard(content)
        self.slices: list[dict[str, Any]] = []
        self.allocated: list[dict[str, Any]] = []
        self.shares: list[dict[str, Any]] = []
        self.consumed: list[dict[str, Any]] = []

    def some(self, content: str, chance: float) -> bool:
        return content in self.contents and self.draw.random() < chance

    def number(self, kind: str) -> int:
        return self.draw.randint(*self.size[kind])

    def case(self) -> Case:
        names = set()
        for _ in range(self.number("pools")):
            driver, pool = self.draw.choice(DRIVERS), f"pool-{self.draw.randint(0, 5)}"
            if (driver, pool) not in names:
                names.add((driver, pool))
                self.pool(driver, pool)
        self.draw.shuffle(self.slices)
        status = {"declaredFeatures": ["DRAOptionalNodeOperations"]} if self.draw.random() < 0.7 else {}
        labels = {"region": "west", "zone": "w1", "kubernetes.io/hostname": NODE}
        return {
            "name": self.name,
            "features": self.features,
            "node": {"metadata": {"name": NODE, "labels": labels}, "status": status},
            "claims": [self.claim(f"claim-{i}") for i in range(self.number("claims"))],
            "classes": [self.device_class(name) for name in ("any", "a", "b", "big")],
            "slices": self.slices,
            "allocatedDevices": self.allocated,
            "allocatedShares": self.shares,
            "consumedCapacity": self.consumed,
        }

    def device_class(self, name: str) -> dict[str, Any]:
        text = {
            "any": "true",
            "a": "device.driver == 'a.example'",
            "b": "device.driver == 'b.example'",
            "big": "device.attributes[device.driver].?model.orValue('none') == 'big'",
        }[name]
        spec: dict[str, Any] = {"selectors": [{"cel": {"expression": text}}]}
        if self.some("configs", 0.6):
            spec["config"] = [self.config(f"class-{name}-{i}") for i in range(self.draw.randint(1, 2))]
        return {"metadata": {"name": name}, "spec": spec}

    def config(self, value: str) -> dict[str, Any]:
        return {"opaque": {"driver": self.draw.choice(DRIVERS), "parameters": {"from": value}}}

    # Pools

    def pool(self, driver: str, pool: str) -> None:
        draw = self.draw
        devices = [self.device(driver, f"d{i}") for i in range(self.number("devices"))]
        sets = self.counter_sets() if "counters" in self.contents and draw.random() < 0.8 else []
        for device in devices:
            if sets and draw.random() < 0.8:
                device["consumesCounters"] = [self.uses(group) for group in draw.sample(sets, draw.randint(1, 2))]
        parts = [devices]
        if draw.random() < 0.4:
            cut = draw.randint(0, len(devices))
            parts = [devices[:cut], devices[cut:]]
        names = [f"{pool}-{driver}-{letter}" for letter in draw.sample("abcdef", len(parts))]
        bodies = [(name, {"devices": part, **self.place(part)}) for name, part in zip(names, parts, strict=True)]
        if sets:
            where = draw.choice([{"nodeName": NODE}, {"nodeName": "node-2"}, {"allNodes": True}])
            bodies.append((f"{pool}-{driver}-counters", {"sharedCounters": sets, **where}))
        generation = draw.randint(1, 2)
        count = len(bodies)
        if self.some("bad pools", 0.4):
            count, generation = self.break_pool(bodies, devices, driver, pool, count, generation)
        for name, body in bodies:
            group = {"name": pool, "generation": generation, "resourceSliceCount": count}
            spec = {"driver": driver, "pool": group, **body}
            if self.some("operations", 0.4):
                spec["skipNodeOperations"] = draw.choice([["*"], ["NodePrepareResources", "NodeUnprepareResources"]])
            self.slices.append({"metadata": {"name": name}, "spec": spec})
        for device in devices:
            if self.some("held", 0.3):
                self.hold(driver, pool, device)

    def break_pool(
        self, bodies: list[Any], devices: list[Any], driver: str, pool: str, count: int, generation: int
    ) -> tuple[int, int]:
        draw = self.draw
        way = draw.choice(
            ["incomplete", "too many", "duplicate", "obsolete", "older", "unknown set", "unknown counter"]
        )
        if way == "incomplete":
            return count + 1, generation
        if way == "too many":
            return max(1, count - 1), generation
        if way == "duplicate" and devices:
            bodies.append((f"{pool}-{driver}-z", {"devices": [dict(devices[0])], "nodeName": NODE}))
            return count + 1, generation
        if way in ("obsolete", "older"):
            other = generation + (1 if way == "obsolete" else -1)
            where = draw.choice([{"nodeName": NODE}, {"nodeName": "node-2"}])
            spec = {
                "driver": driver,
                "pool": {"name": pool, "generation": other, "resourceSliceCount": draw.randint(1, 2)},
                "devices": [self.device(driver, "d0"), self.device(driver, "other")],
                **where,
            }
            self.slices.append({"metadata": {"name": f"{pool}-{driver}-y"}, "spec": spec})
            return count + draw.randint(0, 1), generation
        using = [device for device in devices if device.get("consumesCounters")]
        if using:
            use = using[-1]["consumesCounters"][0]
            if way == "unknown set":
                use["counterSet"] = "nowhere"
            else:
                use["counters"] = {"nothing": {"value": "1"}}
        return count, generation

    def place(self, devices: list[dict[str, Any]]) -> dict[str, Any]:
        draw = self.draw
        if self.some("per device", 0.5):
            for device in devices:
                device.update(self.where())
            return {"perDeviceNodeSelection": True}
        if "regions" in self.contents:
            return self.where()
        return {"nodeName": NODE} if draw.random() < 0.9 else {"nodeName": "node-2"}

    def where(self) -> dict[str, Any]:
        draw = self.draw
        way = draw.random()
        if way < 0.4:
            return {"nodeName": draw.choice([NODE, NODE, "node-2"])}
        if way < 0.6:
            return {"allNodes": True}
        choices: list[dict[str, Any]] = [
            {"matchExpressions": [{"key": "region", "operator": "In", "values": ["west", "east"]}]},
            {"matchExpressions": [{"key": "region", "operator": "In", "values": ["east", "west"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["w2"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["w2"]}]},
            {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]},
        ]
        terms = draw.sample(choices, 2) if draw.random() < 0.05 else [draw.choice(choices)]
        return {"nodeSelector": {"nodeSelectorTerms": terms}}

    def counter_sets(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f"set-{i}",
                "counters": {"mem": {"value": self.amount(4, 12)}, "cpu": {"value": self.amount(3, 9)}},
            }
            for i in range(2)
        ]

    def amount(self, low: int, high: int) -> str:
        found = self.draw.randint(low, high)
        return f"{found}Gi" if self.draw.random() < 0.02 else str(found)

    def uses(self, group: dict[str, Any]) -> dict[str, Any]:
        draw = self.draw
        names = draw.choice([("mem",), ("cpu",), ("mem", "cpu")])
        found: dict[str, Any] = {
            "counterSet": group["name"],
            "counters": {name: {"value": str(draw.randint(0, 4))} for name in names},
        }
        if self.some("groups", 0.7):
            found["compatibilityGroups"] = draw.sample(["g1", "g2", "g3"], draw.randint(1, 2))
        return found

    # Devices

    def device(self, driver: str, name: str) -> dict[str, Any]:
        draw = self.draw
        attributes: dict[str, Any] = {}
        prefix = draw.choice(["", "", f"{driver}/"])
        if draw.random() < 0.9:
            attributes[f"{prefix}numa"] = {"int": draw.randint(0, 2)}
        if draw.random() < 0.9:
            if self.some("lists", 0.5):
                attributes["root"] = {"strings": draw.sample(["x", "y", "z"], draw.randint(1, 2))}
            else:
                attributes["root"] = draw.choice([{"string": "x"}, {"string": "y"}, {"string": "z"}])
        if draw.random() < 0.9:
            attributes["fabric.example/root"] = draw.choice([{"string": "f1"}, {"string": "f2"}, {"int": 1}])
        if draw.random() < 0.5:
            attributes["version"] = draw.choice(
                [{"version": "1.0.0"}, {"version": "1.0.0+a"}, {"version": "1.2.0"}]
                + ([{"versions": ["1.0.0", "1.2.0"]}, {"ints": [1, 2]}] if "lists" in self.contents else [])
            )
        if draw.random() < 0.5:
            attributes["healthy"] = {"bool": draw.random() < 0.7}
        attributes["model"] = {"string": draw.choice(["small", "big"])}
        device: dict[str, Any] = {"name": name, "attributes": attributes}
        if "shares" in self.contents or "capacity" in self.contents or draw.random() < 0.2:
            shared = self.some("shares", 0.6)
            if shared or draw.random() < 0.1:
                device["allowMultipleAllocations"] = shared
            device["capacity"] = {
                capacity: self.capacity() for capacity in ("mem", "bw")[: draw.choice([0, 1, 1, 2, 2])]
            }
        if self.some("taints", 0.4):
            device["taints"] = [
                {
                    "key": draw.choice(["k1", "k2"]),
                    "value": draw.choice(["v", "w", ""]),
                    "effect": draw.choice(["NoSchedule", "NoExecute", "None", "Later"]),
                }
                for _ in range(draw.randint(1, 2))
            ]
        if self.some("binding", 0.3):
            device["bindingConditions"], device["bindingFailureConditions"] = ["ready"], ["failed"]
            if draw.random() < 0.4:
                device["bindsToNode"] = True
        return device

    def capacity(self) -> dict[str, Any]:
        draw = self.draw
        if draw.random() < 0.5:
            return {"value": self.amount(1, 6)}
        policies: list[dict[str, Any]] = [
            {"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}},
            {"default": "1", "validRange": {"min": "1", "max": "4"}},
            {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
            {"default": "1", "validValues": ["1", "3"]},
            {"default": "0", "validValues": ["0", "2"]},
            {"default": "3"},
        ]
        if self.features["FractionalCapacityRange"]:
            policies.append({"default": "500m", "validRange": {"min": "500m", "max": "4", "step": "250m"}})
        policy = draw.choice(policies)
        value = "4Gi" if policy["default"] == "1Gi" and draw.random() < 0.95 else draw.choice(["6", "6", "4Gi"])
        return {"value": value, "requestPolicy": policy}

    def hold(self, driver: str, pool: str, device: dict[str, Any]) -> None:
        name = {"driver": driver, "pool": pool, "device": device["name"]}
        if any(device["name"] == d["device"] and pool == d["pool"] and driver == d["driver"] for d in self.allocated):
            return
        # With the gate off upstream's caller records shares as exclusive allocations.
        if not (device.get("allowMultipleAllocations") and self.features["ConsumableCapacity"]):
            self.allocated.append(name)
            return
        if self.draw.random() < 0.15:
            self.allocated.append(name)
            return
        for _ in range(self.draw.randint(1, 2)):
            self.shares.append({**name, "shareID": SHARE.format(len(self.shares))})
        if device.get("capacity"):
            amounts = {capacity: str(self.draw.randint(0, 3)) for capacity in device["capacity"]}
            self.consumed.append({**name, "consumed": amounts})

    # Claims

    def claim(self, name: str) -> dict[str, Any]:
        draw = self.draw
        requests: list[dict[str, Any]] = []
        names: list[str] = []
        for i in range(self.number("requests")):
            request = f"r{i}"
            if self.some("options", 0.5):
                subs = [{"name": f"s{j}", **self.asked(sub=True)} for j in range(draw.randint(1, 3))]
                requests.append({"name": request, "firstAvailable": subs})
                names += [f"{request}/{sub['name']}" for sub in subs]
            else:
                requests.append({"name": request, "exactly": self.asked(sub=False)})
            names.append(request)
        devices: dict[str, Any] = {"requests": requests}
        constraints = [self.constraint(names) for _ in range(draw.randint(1, 2)) if self.some("constraints", 0.6)]
        if constraints:
            devices["constraints"] = constraints
        if self.some("configs", 0.6):
            devices["config"] = [
                {
                    **self.config(f"claim-{i}"),
                    **({"requests": draw.sample(names, draw.randint(1, len(names)))} if draw.random() < 0.7 else {}),
                }
                for i in range(draw.randint(1, 2))
            ]
        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}

    def constraint(self, names: list[str]) -> dict[str, Any]:
        draw = self.draw
        # With the gate off upstream's stable allocator, which is then in charge, does not know distinctAttribute.
        kinds = ["matchAttribute", "matchAttribute"]
        if self.features["ConsumableCapacity"]:
            kinds.append("distinctAttribute")
        attributes = ["a.example/numa", "a.example/root", "a.example/model", "fabric.example/root", "a.example/version"]
        if "derived" in self.contents:
            attributes += ["a.example/derived", "a.example/derived"]
        found: dict[str, Any] = {draw.choice(kinds): draw.choice(attributes)}
        if self.some("errors", 0.05):
            found = {}
        if draw.random() < 0.5:
            found["requests"] = draw.sample(names, draw.randint(1, len(names)))
        return found

    def asked(self, *, sub: bool) -> dict[str, Any]:
        draw = self.draw
        asked: dict[str, Any] = {
            "deviceClassName": draw.choice(["any"] * 8 + ["a", "a", "b", "big"]),
            "allocationMode": "ExactCount",
            "count": draw.choice([1, 1, 1, 1, 1, 2, 3]),
        }
        if self.some("selectors", 0.6):
            asked["selectors"] = [{"cel": {"expression": self.selector()}}]
        if self.some("all", 0.4):
            asked["allocationMode"] = "All"
            del asked["count"]
        if self.some("capacity", 0.6):
            names = draw.sample(["mem", "bw"], draw.choice([1, 1, 1, 2]))
            asked["capacity"] = {
                "requests": {name: draw.choice(["1", "1", "1", "2", "3", "1500m", "1Gi"]) for name in names}
            }
        if self.some("taints", 0.6):
            asked["tolerations"] = [self.toleration() for _ in range(draw.randint(1, 2))]
        if self.some("derived", 0.5):
            asked["derivedAttributes"] = [{"name": "a.example/derived", "expression": self.derived()}]
        if not sub and self.some("admin", 0.3):
            asked["adminAccess"] = True
        if "errors" in self.contents:
            self.spoil(asked)
        return asked

    def spoil(self, asked: dict[str, Any]) -> None:
        way = self.draw.random()
        if way < 0.05:
            asked["deviceClassName"] = self.draw.choice(["", "absent"])
        elif way < 0.08:
            asked["allocationMode"] = "Some"
        elif way < 0.11:
            asked["count"] = 40
        elif way < 0.14:
            asked["selectors"] = [{}]
        elif way < 0.17:
            asked["selectors"] = [{"cel": {"expression": BROKEN}}]
        elif way < 0.35:
            asked["selectors"] = [{"cel": {"expression": "device.attributes[device.driver].numa > 0"}}]

    def selector(self) -> str:
        texts = [
            "device.attributes[device.driver].model == 'big'",
            "has(device.attributes[device.driver].numa) && device.attributes[device.driver].numa > 0",
            "device.attributes['fabric.example'].?root.orValue('f1') == 'f1'",
            "'mem' in device.capacity[device.driver]",
            "!has(device.capacity[device.driver].mem) || "
            "device.capacity[device.driver].mem.compareTo(quantity('3')) >= 0",
            "!has(device.attributes[device.driver].version) || "
            "type(device.attributes[device.driver].version) == type(1)",
        ]
        if self.features["ConsumableCapacity"]:
            texts += ["device.allowMultipleAllocations", "!device.allowMultipleAllocations"]
        return self.draw.choice(texts)

    def derived(self) -> str:
        texts = [
            "device.attributes[device.driver].model + 'ish'",
            "has(device.attributes[device.driver].numa) ? device.attributes[device.driver].numa / 2 : 0",
            "device.driver",
        ]
        return "device.attributes[device.driver].numa" if self.some("errors", 0.5) else self.draw.choice(texts)

    def toleration(self) -> dict[str, Any]:
        draw = self.draw
        found: dict[str, Any] = {"operator": draw.choice(["Exists", "Exists", "Equal"])}
        if found["operator"] == "Equal" or draw.random() < 0.8:
            found["key"] = draw.choice(["k1", "k2"])
        if found["operator"] == "Equal":
            found["value"] = draw.choice(["v", "w"])
        if draw.random() < 0.5:
            found["effect"] = draw.choice(["NoSchedule", "NoExecute"])
        if draw.random() < 0.2:
            found["tolerationSeconds"] = 30
            found["effect"] = "NoExecute"
        return found
