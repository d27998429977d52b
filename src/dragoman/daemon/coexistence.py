"""Who else schedules in this cluster, and is it kept off our devices? Reads for `schedule.fences`, which judges.

`look` is asked before the scheduler starts, which refuses where another scheduler may allocate the same devices, and
now and then while it works. `FreshClaims` reads all claims for decisions that are made beside another scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dragoman.api.kinds import Kind, kind_of
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.errors import Denied, Invalid, NotFound
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.fences import POLICY, Rival, fenced_drivers, is_held, rivals, written_lately
from dragoman.schedule.scope import EVERYTHING, DeviceScope

LEASES = "kube-system"
MANAGER = "dragoman"
CONTROLLER_MANAGER = "kube-controller-manager"
COEXISTENCE_PAGE = "docs/guides/coexistence.md"
LOOK_AROUND_S = 30.0
"""How often it is looked who else is there."""
ADMISSION = "admissionregistration.k8s.io"
POLICIES = Kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies", ADMISSION, ("v1",), False)
BINDINGS = Kind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", ADMISSION, ("v1",), False)


class Surroundings(msgspec.Struct, frozen=True):
    """Other schedulers, the drivers whose devices they may allocate too, and what could not be read."""

    rivals: tuple[Rival, ...] = ()
    unfenced: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether another scheduler may take devices that ours gives away."""
        return bool(self.rivals and self.unfenced)

    def __str__(self) -> str:
        others = "; ".join(f"{rival.name} ({rival.evidence})" for rival in self.rivals)
        text = f"another scheduler allocates devices in this cluster: {others}; it could take devices of "
        text += f"{', '.join(self.unfenced)} that this one allocates, and one device would go to two claims"
        if self.unread:
            text += f" (fences that could not be read do not count: {'; '.join(self.unread)})"
        return text


async def look(client: Client, clock: Clock, own_lease: str, scope: DeviceScope = EVERYTHING) -> Surroundings:
    """What there is now. Raises Retry while the server does not answer, Denied without the scheduler's own rights."""
    claims = (await client.list(kind_of("ResourceClaim"))).items
    others = rivals(await _leases(client), claims, own_lease, (MANAGER,), clock.utc())
    if not others:
        return Surroundings()
    slices = (await client.list(kind_of("ResourceSlice"))).items
    slices = [one for one in slices if scope.covers(one["spec"]["driver"], one["spec"]["pool"]["name"])]
    drivers = {one["spec"]["driver"] for one in slices}
    unread: list[str] = []
    nodes = (await client.list(kind_of("Node"))).items
    rules = await _listed(client, kind_of("DeviceTaintRule"), unread)
    policies = await _listed(client, POLICIES, unread)
    bindings = [one for one in await _listed(client, BINDINGS, unread) if one["spec"].get("policyName") == POLICY]
    fenced = fenced_drivers(slices, nodes, rules, policies, bindings, await _parameters(client, bindings, unread))
    return Surroundings(others, tuple(sorted(drivers - fenced)), tuple(unread))


async def _leases(client: Client) -> list[Object]:
    kind = kind_of("Lease")
    try:
        return (await client.list(kind, LEASES)).items
    except Denied:
        try:
            return [await client.get(kind, "kube-scheduler", LEASES)]
        except NotFound:
            return []


async def _listed(client: Client, kind: Kind, unread: list[str]) -> list[Object]:
    try:
        return (await client.list(kind)).items
    except (NotFound, Denied) as error:
        if isinstance(error, Denied):
            unread.append(str(error))
        return []


async def _parameters(client: Client, bindings: Sequence[Object], unread: list[str]) -> Object | None:
    for binding in bindings:
        reference = binding["spec"].get("paramRef") or {}
        if not reference.get("name"):
            continue
        try:
            return await client.get(kind_of("ConfigMap"), reference["name"], reference.get("namespace", ""))
        except NotFound:
            continue
        except Denied as error:
            unread.append(str(error))
    return None


async def check(
    client: Client, clock: Clock, own_lease: str, *, share: bool, scope: DeviceScope = EVERYTHING
) -> Surroundings:
    """`look`, and Invalid where the scheduler must not start. share: start anyway, checking each decision."""
    found = await look(client, clock, own_lease, scope)
    if found.is_shared and not share:
        raise Invalid(
            "",
            f"{found}\nhelp: fence the drivers (docs/guides/coexistence.md, deploy/fence.yaml), end the other "
            "scheduler, or start with --share-devices",
        )
    return found


# ---- controllers


async def controller_manager(client: Client, clock: Clock) -> str:
    """What shows that kube-controller-manager is running: the Lease it holds, or what it wrote lately; "" if nothing.

    It does all that our controllers do, by default: both at once make objects twice and delete each other's.
    """
    if await _manager_leads(client, clock):
        return f"holds the Lease {LEASES}/{CONTROLLER_MANAGER}"
    for name in ("Node", "ResourceClaim", "Pod"):
        for one in (await client.list(kind_of(name))).items:
            if written_lately(one, CONTROLLER_MANAGER, clock.utc()):
                meta = one["metadata"]
                return f"wrote {name} {meta.get('namespace', '')}/{meta['name']} lately".replace(" /", " ")
    return ""


async def _manager_leads(client: Client, clock: Clock) -> bool:
    try:
        lease = await client.get(kind_of("Lease"), CONTROLLER_MANAGER, LEASES)
    except NotFound:
        return False
    return is_held(lease, clock.utc())


async def while_alone(client: Client, clock: Clock, entropy: Entropy, run: Callable[[], Awaitable[None]]) -> None:
    """`run` for as long as kube-controller-manager does not lead; once it does, `run` is ended until it has gone."""
    log = get("controllers")
    while True:
        if await _manager_leads(client, clock):
            log.error("stopped: kube-controller-manager is running, which does the same", hint=COEXISTENCE_PAGE)
            await clock.sleep(LOOK_AROUND_S)
            continue
        async with Tasks("alone", clock, entropy) as tasks:
            working = tasks.start("work", _run(run))
            leading = tasks.start("look", _until_manager_leads(client, clock))
            await asyncio.wait({working, leading}, return_when=asyncio.FIRST_COMPLETED)
            tasks.stop()
        if not leading.done() or leading.cancelled():
            return


async def _run(run: Callable[[], Awaitable[None]]) -> None:
    await run()


async def _until_manager_leads(client: Client, clock: Clock) -> None:
    while not await _manager_leads(client, clock):
        await clock.sleep(LOOK_AROUND_S)


async def check_controllers(client: Client, clock: Clock, names: Sequence[str], *, take_over: bool) -> None:
    """Invalid where kube-controller-manager runs what these names mean. take_over: it was started without them."""
    evidence = await controller_manager(client, clock)
    if not evidence:
        return
    if "*" in names:
        raise Invalid(
            "",
            f"kube-controller-manager is running ({evidence}) and does all that these controllers do: there is nothing "
            "left to run\nhelp: name those that it was started without, with --controllers NAME,... --take-over "
            "(docs/guides/coexistence.md)",
        )
    if not take_over:
        raise Invalid(
            "--controllers",
            f"kube-controller-manager is running ({evidence}) and runs {', '.join(names)}, too, unless "
            "configured not to\nhelp: start it with --controllers=*,-NAME, then start this with --take-over "
            "(docs/guides/coexistence.md has its names)",
        )


class FreshClaims:
    """All claims as the server has them, read after the call: callers that come while a read runs share the next."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reading: asyncio.Future[list[Object]] | None = None
        self._next: asyncio.Future[list[Object]] | None = None

    async def read(self) -> list[Object]:
        """Raises what the client raises."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            return await asyncio.shield(self._reading)
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._reading))
        return await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Future[list[Object]]) -> list[Object]:
        await asyncio.wait([before])
        self._reading, self._next = self._next, None
        return await self._read()

    async def _read(self) -> list[Object]:
        mine = asyncio.current_task()
        try:
            return (await self._client.list(kind_of("ResourceClaim"))).items
        finally:
            if self._reading is mine:
                self._reading = None
