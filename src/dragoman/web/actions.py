"""What may the page of `up --web` change? Apply, delete, faults and the clock, in that embedded cluster alone.

Each is what the command of that name does. Never acts by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dragoman.api.files import scan
from dragoman.api.kinds import kind_of
from dragoman.cluster.http import HttpClient
from dragoman.errors import DragomanError, Invalid, NotFound, Retry
from dragoman.kubelet.faults import CLOCK, FAULT, INVALID, LABEL, MESSAGE, STATE, FaultKind, clock_request_of, fault_of
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

CONFIG_MAP = kind_of("ConfigMap")
NAMESPACE = "default"
ANSWER_S = 10.0
POLL_S = 0.05
MANAGER = "dragoman-apply"
DELETABLE = ("Pod", "ResourceClaim", "ResourceClaimTemplate", "Deployment", "Job", "DeviceTaintRule", "Node")


class Actions:
    """The actions on one cluster."""

    def __init__(self, client: HttpClient, clock: Clock, entropy: Entropy, faults: Mapping[str, FaultKind]) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._faults = faults

    def offered(self) -> dict[str, Any]:
        """{"faults": [{"name", "summary", "fields"}], "kinds"}: what forms need to know."""
        faults = [
            {
                "name": kind.name,
                "summary": kind.summary,
                "fields": [{"name": f.name, "placeholder": f.placeholder, "help": f.help} for f in kind.fields],
            }
            for kind in self._faults.values()
        ]
        return {"faults": faults, "kinds": list(DELETABLE)}

    async def act(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """{"lines"}: what came of it. Raises Invalid, NotFound and what the server answers."""
        match name:
            case "apply":
                return {"lines": await self._apply(str(asked.get("text", "")))}
            case "delete":
                return {"lines": await self._delete(asked)}
            case "fault":
                return {"lines": await self._fault(asked)}
            case "recover":
                return {"lines": await self._recover(str(asked.get("name", "")))}
            case "faults":
                return {"faults": await self._listed()}
            case "clock":
                return {"lines": await self._turn(asked)}
            case _:
                raise NotFound(f"no action {name}")

    async def _apply(self, text: str) -> list[str]:
        found = scan([("manifest", text)], changes=True)
        for error in (*found.broken, *found.invalid):
            raise Invalid("manifest", str(error))
        lines = []
        for document in found.documents:
            kind = document.kind
            if kind is None:
                raise Invalid(document.subject, "is of a kind that is not known here")
            namespace = (document.namespace or NAMESPACE) if kind.namespaced else ""
            label = f"{kind.kind.lower()}/{document.name}"
            try:
                await self._client.patch(
                    kind, document.name, document.raw, namespace, type="apply", manager=MANAGER, force=True, strict=True
                )
            except DragomanError as error:
                lines.append(f"{label}: {error}")
            else:
                lines.append(f"{label} applied")
        if not lines:
            raise Invalid("manifest", "holds no object")
        return lines

    async def _delete(self, asked: Mapping[str, Any]) -> list[str]:
        word, name = str(asked.get("kind", "")), str(asked.get("name", ""))
        if word not in DELETABLE or not name:
            raise Invalid("kind", f"must be one of {', '.join(DELETABLE)}, with a name")
        kind = kind_of(word)
        namespace = str(asked.get("namespace") or NAMESPACE) if kind.namespaced else ""
        await self._client.delete(kind, name, namespace)
        return [f"{word.lower()}/{name} deleted"]

    async def _fault(self, asked: Mapping[str, Any]) -> list[str]:
        data = {str(k): str(v) for k, v in dict(asked.get("data") or {}).items() if str(v).strip()}
        fault = fault_of(data, self._faults)
        name = f"{data['fault']}-{self._entropy.suffix()}"
        patience_s = ANSWER_S + float(getattr(fault, "downtime_s", 0.0))
        return [await self._asked(name, FAULT, data, patience_s, once=fault.once)]

    async def _turn(self, asked: Mapping[str, Any]) -> list[str]:
        data = {key: str(asked[key]) for key in ("advance", "speed") if asked.get(key)}
        request = clock_request_of(data)
        patience_s = ANSWER_S + getattr(request, "seconds", 0.0) * 0.2
        return [await self._asked(f"clock-{self._entropy.suffix()}", CLOCK, data, patience_s, once=True)]

    async def _asked(self, name: str, label: str, data: dict[str, str], patience_s: float, *, once: bool) -> str:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {LABEL: label}},
            "data": data,
        }
        await self._client.create(CONFIG_MAP, body, NAMESPACE)
        state, message = "", ""
        try:
            deadline = self._clock.monotonic() + patience_s
            while not state and self._clock.monotonic() < deadline:
                await self._clock.sleep(POLL_S)
                notes = (await self._client.get(CONFIG_MAP, name, NAMESPACE))["metadata"].get("annotations") or {}
                state, message = notes.get(STATE, ""), notes.get(MESSAGE, "")
        finally:
            if once or state == INVALID:
                with suppress(NotFound):
                    await self._client.delete(CONFIG_MAP, name, NAMESPACE)
        if state == INVALID:
            raise Invalid("", message)
        if not state:
            raise Retry(f"no response within {patience_s:g} s")
        return message or f"{name} {state}"

    async def _listed(self) -> list[dict[str, str]]:
        listed = await self._client.list(CONFIG_MAP, NAMESPACE, label_selector=f"{LABEL}={FAULT}")
        rows = []
        for body in listed.items:
            notes = body["metadata"].get("annotations") or {}
            rows.append(
                {"name": body["metadata"]["name"], "state": notes.get(STATE, "new"), "message": notes.get(MESSAGE, "")}
            )
        return sorted(rows, key=lambda row: row["name"])

    async def _recover(self, name: str) -> list[str]:
        if name not in {row["name"] for row in await self._listed()}:
            raise NotFound(f"no fault {name}")
        await self._client.delete(CONFIG_MAP, name, NAMESPACE)
        return [f"{name} recovered"]
