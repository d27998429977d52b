"""When is a pod's claim prepared and unprepared? Once for all pods that share it, and never by halves.

The kubelet's DRA manager (KEP-4381): checks without touching state, then the checkpoint, then the drivers, then the
checkpoint. It never starts containers, and decides nothing that the API server does not say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, NotFound, Retry
from dragoman.kubelet.connections import Connection
from dragoman.kubelet.pod import KubeletPod, NotResolved, Wanted, wanted_claims
from dragoman.kubelet.state import ClaimState, ClaimStates, DriverState, PreparedDeviceState
from dragoman.node.driver import PreparedDevice

CLAIM = kind_of("ResourceClaim")
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


class _Checked(msgspec.Struct, frozen=True):
    """A claim that passed the checks: which driver gets which results, and which calls are skipped."""

    claim: ResourceClaim
    results: dict[str, list[DeviceRequestAllocationResult]]

    @property
    def key(self) -> NamespacedName:
        return self.claim.metadata.namespace, self.claim.metadata.name

    def skipped(self, driver: str) -> list[str]:
        """Operations that all results of the driver want skipped (KEP-5945)."""
        results = self.results[driver]
        return [
            operation
            for operation in (PREPARE, UNPREPARE)
            if all(operation in r.skip_node_operations or "*" in r.skip_node_operations for r in results)
        ]


class Claims:
    """The claims of one node's pods. `connection(driver)` finds the driver, None when it is not registered."""

    def __init__(
        self,
        client: Client,
        states: ClaimStates,
        connection: Callable[[str], Connection | None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed()` is called when claims became prepared or ceased to be."""
        self._changed = changed
        self.client = client
        self.states = states
        self.connection = connection
        self._locks: dict[NamespacedName, asyncio.Lock] = {}
        self._users: dict[NamespacedName, int] = {}

    # ---- prepare

    async def prepare(self, pod: KubeletPod) -> None:
        """Make all claims of the pod usable. Raises Retry with the kubelet's text; may be called again any time."""
        found = [await self._check(pod, wanted) for wanted in self._wanted(pod)]
        if not found:
            return
        checked = list({one.key: one for one in found}.values())
        async with self._locked(claim.key for claim in checked):
            self._enter(pod, checked)
            await self._prepare_entries(checked)

    def _wanted(self, pod: KubeletPod) -> list[Wanted]:
        try:
            return wanted_claims(pod)
        except NotResolved as error:
            raise Retry(str(error)) from None

    async def _check(self, pod: KubeletPod, wanted: Wanted) -> _Checked:
        namespace, name = pod.metadata.namespace, wanted.claim
        try:
            claim = codec.decode(ResourceClaim, await self.client.get(CLAIM, name, namespace))
        except DragomanError as error:
            raise Retry(f"fetch ResourceClaim {name}: {error}") from error
        group = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else None
        if wanted.generated:
            self._check_owner(pod, claim, group)
        if not any(
            (ref.resource == "pods" and ref.uid == pod.uid) or (ref.resource == "podgroups" and ref.name == group)
            for ref in claim.status.reserved_for
        ):
            raise Retry(
                f"pod {pod.metadata.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({claim.metadata.uid})"
            )
        if claim.status.allocation is None:
            raise Retry(f"ResourceClaim {name}: not allocated")
        results: dict[str, list[DeviceRequestAllocationResult]] = {}
        for result in claim.status.allocation.devices.results:
            results.setdefault(result.driver, []).append(result)
        checked = _Checked(claim, results)
        for driver in results:
            if PREPARE not in checked.skipped(driver):
                self._driver(driver)
        return checked

    def _check_owner(self, pod: KubeletPod, claim: ResourceClaim, group: str | None) -> None:
        owner = claim.metadata.controller
        ours = owner is not None and (
            owner.uid == pod.uid
            or (
                group is not None
                and owner.kind == "PodGroup"
                and owner.api_version.startswith("scheduling.k8s.io/")
                and owner.name == group
            )
        )
        if not ours:
            namespace = claim.metadata.namespace
            who = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
            raise Retry(
                f"ResourceClaim {namespace}/{claim.metadata.name} was not created for "
                f"Pod {namespace}/{pod.metadata.name} ({who})"
            )

    def _driver(self, driver: str) -> Connection:
        connection = self.connection(driver)
        if connection is None:
            raise Retry(f"DRA driver {driver} is not registered")
        return connection

    def _enter(self, pod: KubeletPod, checked: Sequence[_Checked]) -> None:
        changed = False
        for one in checked:
            meta = one.claim.metadata
            state = self.states.claims.get(one.key)
            if state is not None and state.claim_uid != meta.uid:
                raise Retry(
                    f"old ResourceClaim with same name {meta.name} and different UID {state.claim_uid} still exists "
                    "(previous pod force-deleted?!)"
                )
            if state is not None and (stale := _stale_device(state, one)):
                # Deallocated and allocated again before its former pod was done here: what is prepared is not what
                # this pod was given.
                raise Retry(f"ResourceClaim {meta.name}: {stale} of its former allocation is still prepared")
            if state is None:
                drivers = {name: DriverState() for name in one.results}
                for name, driver in drivers.items():
                    driver.skip = one.skipped(name) or msgspec.UNSET
                state = ClaimState(meta.uid, meta.name, meta.namespace, {}, drivers)
                self.states.claims[one.key] = state
                changed = True
            if pod.uid not in state.pod_uids:
                state.pod_uids[pod.uid] = {}
                changed = True
        if changed:
            # Before any call, so that a crash leaves evidence of what has to be undone.
            self.states.save()

    async def _prepare_entries(self, checked: Sequence[_Checked]) -> None:
        todo = [one for one in checked if one.key not in self.states.prepared]
        batches: dict[str, list[_Checked]] = {}
        for one in todo:
            for driver in one.results:
                if PREPARE not in one.skipped(driver):
                    batches.setdefault(driver, []).append(one)
        for driver, batch in batches.items():
            await self._call_prepare(driver, batch)
        self.states.prepared.update(one.key for one in todo)
        self._changed()
        if batches:
            self.states.save()

    async def _call_prepare(self, driver: str, batch: Sequence[_Checked]) -> None:
        by_uid = {one.claim.metadata.uid: one for one in batch}
        refs = [self.states.claims[one.key].ref for one in batch]
        answers = await self._driver(driver).prepare(refs)
        fault = ""
        for uid, answer in answers.items():
            if uid not in by_uid:
                fault = fault or f"{PREPARE} returned result for unknown claim UID {uid}"
            elif isinstance(answer, str):
                fault = fault or f"{PREPARE} failed for ResourceClaim {by_uid[uid].claim.metadata.name}: {answer}"
            else:
                state = self.states.claims[by_uid[uid].key]
                state.driver_state.setdefault(driver, DriverState()).devices = [
                    PreparedDeviceState.of(d) for d in answer
                ] or None
        missing = len(by_uid.keys() - answers.keys())
        if missing and not fault:
            fault = f"{PREPARE} skipped {missing} ResourceClaims"
        if fault:
            raise Retry(fault)

    # ---- unprepare

    async def unprepare(self, pod_uid: str) -> None:
        """Give back what the pod held; claims that other pods use stay prepared. Uses local state only.

        Raises Retry; then the pod still holds what could not be given back.
        """
        async with self._locked(state.key for state in self.states.of_pod(pod_uid)):
            last: list[ClaimState] = []
            changed = False
            for state in self.states.of_pod(pod_uid):
                if len(state.pod_uids) > 1:
                    del state.pod_uids[pod_uid]
                    changed = True
                else:
                    last.append(state)
            if changed:
                self.states.save()
            await self._unprepare_entries(last)

    async def _unprepare_entries(self, states: Sequence[ClaimState]) -> None:
        batches: dict[str, list[ClaimState]] = {}
        for state in states:
            # What is half unprepared must not be taken for prepared by the next pod.
            self.states.prepared.discard(state.key)
            for driver, part in state.driver_state.items():
                if part.skip is msgspec.UNSET or UNPREPARE not in part.skip:
                    batches.setdefault(driver, []).append(state)
        for driver, batch in batches.items():
            await self._call_unprepare(driver, batch)
        for state in states:
            del self.states.claims[state.key]
        if states:
            self._changed()
            self.states.save()

    async def _call_unprepare(self, driver: str, batch: Sequence[ClaimState]) -> None:
        by_uid = {state.claim_uid: state for state in batch}
        answers = await self._driver(driver).unprepare([state.ref for state in batch])
        for uid, error in answers.items():
            if uid not in by_uid:
                raise Retry(f"{UNPREPARE} returned result for unknown claim UID {uid}")
            if error:
                raise Retry(f"{UNPREPARE} failed for ResourceClaim {by_uid[uid].claim_name}: {error}")
        if missing := len(by_uid.keys() - answers.keys()):
            raise Retry(f"{UNPREPARE} skipped {missing} ResourceClaims")

    def adopt(self, pod_uid: str) -> None:
        """The pod's containers run on since before this process: its claims are prepared."""
        self.states.prepared.update(state.key for state in self.states.of_pod(pod_uid))
        self._changed()

    # ---- what a container gets

    def devices(self, namespace: str, claim: str, request: str) -> list[tuple[str, PreparedDevice]]:
        """(driver, device) of a prepared claim for that request, "" for all. Raises NotFound."""
        state = self.states.claims.get((namespace, claim))
        if state is None:
            raise NotFound(
                f"internal error: unable to get claim info for ResourceClaim {claim} in namespace {namespace}"
            )
        return [
            (driver, device)
            for driver, part in state.driver_state.items()
            for device in (entry.as_prepared() for entry in part.devices or ())
            if not request or not device.requests or request in device.requests
        ]

    def pods_with(self, driver: str, pool: str, device: str) -> set[str]:
        """Uids of pods that hold that device."""
        return {
            uid
            for state in self.states.claims.values()
            for entry in (state.driver_state[driver].devices or () if driver in state.driver_state else ())
            if (entry.pool_name, entry.device_name) == (pool, device)
            for uid in state.pod_uids
        }

    @asynccontextmanager
    async def _locked(self, keys: Iterable[NamespacedName]) -> AsyncIterator[None]:
        """Each claim has one caller at a time; in one order, so that two pods never wait for each other."""
        ordered = sorted(set(keys))
        for key in ordered:
            self._users[key] = self._users.get(key, 0) + 1
        try:
            async with AsyncExitStack() as held:
                for key in ordered:
                    await held.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
                yield
        finally:
            for key in ordered:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key], self._locks[key]


def _stale_device(state: ClaimState, checked: _Checked) -> str:
    """A device that is prepared for the claim though its allocation does not have it; empty if there is none."""
    for driver, part in state.driver_state.items():
        given = {(result.pool, result.device) for result in checked.results.get(driver, ())}
        for device in part.devices or ():
            if (device.pool_name, device.device_name) not in given:
                return f"device {driver}/{device.pool_name}/{device.device_name}"
    return ""
