"""A driver with defects that can be switched on: python broken_driver.py DEFECT --kubeconfig ... for the bench.

Without a defect it is a sound driver on the SDK, with a health stream; each defect breaks one promise of the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.resource import ResourceClaim, ResourceSlice
from dragoman.cluster.client import Client
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import load
from dragoman.errors import DragomanError, Invalid, NotFound, Retry
from dragoman.node import cdi, publish, slices
from dragoman.node.cdi import DeviceNode, Edits
from dragoman.node.checkpoint import Checkpoint, Contents
from dragoman.node.driver import ClaimRef, DeviceHealth, DeviceSetup, Pool, Setup, device
from dragoman.node.plugin import CLAIM, Places, Plugin, PluginOptions
from dragoman.node.prepare import Preparer
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

COUNT = 140


class Broken:
    """Made-up devices. `forgets` is set by a defect."""

    name = "broken.example.com"
    accepts_all = False

    def pools(self) -> dict[str, Pool]:
        return {"things": Pool(tuple(device(f"thing-{n}") for n in range(COUNT)))}

    def prepare(self, claim: Any) -> Setup:
        known = {found.name for found in self.pools()["things"].devices}
        for result in claim.results:
            if result.device not in known and not self.accepts_all:
                raise Invalid(result.device, "is not there")
        node = lambda name: Edits(device_nodes=(DeviceNode(f"/dev/{name}"),))  # noqa: E731
        return Setup([DeviceSetup(r.pool, r.device, node(r.device)) for r in claim.results])

    def unprepare(self, claim: Any) -> None:
        pass

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        while True:
            yield [DeviceHealth("things", "thing-0", "Healthy")]
            await asyncio.sleep(5)


def not_idempotent(plugin: Plugin) -> None:
    """The second prepare of a claim is an error."""
    prepare = plugin.preparer.prepare

    async def once(ref: ClaimRef, claim: ResourceClaim) -> Any:
        if ref.uid in plugin.checkpoint.claims:
            raise Retry(f"claim {ref} is prepared already")
        return await prepare(ref, claim)

    plugin.preparer.prepare = once  # type: ignore[method-assign]


def gives_twice(plugin: Plugin) -> None:
    """A device that is held is given to another claim."""
    plugin.preparer._refuse_conflict = lambda ref, wanted: None  # type: ignore[method-assign]


def unknown_is_an_error(plugin: Plugin) -> None:
    """Unprepare of an unknown claim fails."""
    unprepare = plugin.preparer.unprepare

    async def strict(ref: ClaimRef) -> Any:
        if ref.uid not in plugin.checkpoint.claims:
            raise NotFound(f"claim {ref} is not prepared")
        return await unprepare(ref)

    plugin.preparer.unprepare = strict  # type: ignore[method-assign]


def unprepare_reads_the_api(plugin: Plugin) -> None:
    """Unprepare needs the claim object."""
    unprepare = plugin.preparer.unprepare

    async def reading(ref: ClaimRef) -> Any:
        if ref.uid in plugin.checkpoint.claims:
            await plugin.client.get(CLAIM, ref.name, ref.namespace)
        return await unprepare(ref)

    plugin.preparer.unprepare = reading  # type: ignore[method-assign]


def forgets_an_entry(plugin: Plugin) -> None:
    """Only the first claim of a call is answered."""
    prepare = plugin.prepare_claims

    async def first_only(refs: Sequence[ClaimRef]) -> Any:
        return await prepare(refs[:1])

    plugin.prepare_claims = first_only  # type: ignore[method-assign]


def one_fails_all(plugin: Plugin) -> None:
    """A claim's error fails the whole call."""
    prepare = plugin.prepare_claims

    async def together(refs: Sequence[ClaimRef]) -> Any:
        answers = await prepare(refs)
        for answer in answers.values():
            if isinstance(answer, DragomanError):
                raise answer
        return answers

    plugin.prepare_claims = together  # type: ignore[method-assign]


def believes_the_name(plugin: Plugin) -> None:
    """The uid of the claim is not compared."""

    async def fetch(ref: ClaimRef) -> ResourceClaim | DragomanError:
        try:
            return codec.decode(ResourceClaim, await plugin.client.get(CLAIM, ref.name, ref.namespace))
        except DragomanError as error:
            return error

    plugin._fetch = fetch  # type: ignore[method-assign]


def believes_the_call(plugin: Plugin) -> None:
    """Everything is prepared, with whatever devices."""
    assert isinstance(plugin.driver, Broken)
    plugin.driver.accepts_all = True


def keeps_nothing(plugin: Plugin) -> None:
    """The checkpoint lives in memory only."""

    def write(contents: Contents) -> None:
        plugin.checkpoint._contents = contents

    plugin.checkpoint._write = write  # type: ignore[method-assign]
    plugin.checkpoint.load = lambda: None  # type: ignore[method-assign]


def writes_in_place(plugin: Plugin) -> None:
    """The checkpoint is emptied, then written: a crash between is fatal."""
    checkpoint = plugin.checkpoint

    def write(contents: Contents) -> None:
        data = msgspec.json.encode(contents)
        with checkpoint.path.open("wb") as file:
            for at in range(0, len(data), 40):
                file.write(data[at : at + 40])
                file.flush()
        checkpoint._contents = contents
        found = checkpoint.path.stat()
        checkpoint._seen = (found.st_ino, found.st_mtime_ns, found.st_size)

    checkpoint._write = write  # type: ignore[method-assign]
    checkpoint._decode = lambda content: msgspec.json.decode(content, type=Contents)  # type: ignore[method-assign]


def starts_empty(plugin: Plugin) -> None:
    """A damaged checkpoint is taken for none."""
    load = Checkpoint.load

    def lenient() -> None:
        try:
            load(plugin.checkpoint)
        except Invalid:
            plugin.checkpoint.path.unlink()
            plugin.checkpoint._seen = None

    plugin.checkpoint.load = lenient  # type: ignore[method-assign]


def leaves_cdi(plugin: Plugin) -> None:
    """CDI files stay when a claim is unprepared."""
    cdi.claim_path = lambda folder, driver, uid: folder / f"k8s.{driver}-claim_{uid}.json"  # type: ignore[assignment]
    unlink = Path.unlink

    def kept(path: Path, missing_ok: bool = False) -> None:
        if "-claim_" not in path.name:
            unlink(path, missing_ok=missing_ok)

    Path.unlink = kept  # type: ignore[method-assign]


def wrong_cdi_name(plugin: Plugin) -> None:
    """The CDI ids answered are in no file."""
    prepare = plugin.preparer.prepare

    async def renamed(ref: ClaimRef, claim: ResourceClaim) -> Any:
        devices = await prepare(ref, claim)
        return tuple(msgspec.structs.replace(d, cdi_ids=(f"{d.cdi_ids[0]}-oops",)) for d in devices)

    plugin.preparer.prepare = renamed  # type: ignore[method-assign]


def blind_to_reboots(plugin: Plugin) -> None:
    """The boot id is not looked at, and CDI files are believed to be there."""
    plugin.checkpoint.boot_id = "always the same"
    Preparer._write_cdi = _once(Preparer._write_cdi)  # type: ignore[method-assign]
    plugin.preparer.sweep_cdi = lambda: None  # type: ignore[method-assign]


def _once(write: Callable[..., None]) -> Callable[..., None]:
    def only_when_new(preparer: Preparer, record: Any) -> None:
        if record.uid not in preparer.checkpoint.claims or not preparer.checkpoint.claims[record.uid].cdi:
            write(preparer, record)

    return only_when_new


def publishes_once(plugin: Plugin) -> None:
    """Slices are not repaired."""
    plugin.publisher._receive = _initially(plugin)  # type: ignore[method-assign]


def _initially(plugin: Plugin) -> Callable[[str, ResourceSlice], None]:
    def keep(what: str, value: ResourceSlice) -> None:
        plugin.publisher._stored.setdefault(value.metadata.name, value)

    return keep


def wrong_count(plugin: Plugin) -> None:
    """Every slice says that it is the only one."""
    layout = slices.layout

    def alone(*arguments: Any) -> Any:
        return tuple(
            msgspec.structs.replace(spec, pool=msgspec.structs.replace(spec.pool, resource_slice_count=1))
            for spec in layout(*arguments)
        )

    slices.layout = alone
    publish.difference = slices.difference


def leaves_sockets(plugin: Plugin) -> None:
    """It just ends when it is told to."""
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))


def deaf_to_sigterm(plugin: Plugin) -> None:
    """It has to be killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def health_only_once(plugin: Plugin) -> None:
    """The stream cannot be opened a second time."""
    follow = plugin.health_lists
    opened = []

    async def first_only() -> AsyncIterator[Any]:
        if not opened:
            opened.append(True)
            async for devices in follow():
                yield devices

    plugin.health_lists = first_only  # type: ignore[method-assign]


def health_of_ghosts(plugin: Plugin) -> None:
    """The stream names devices that are not published."""

    async def ghosts() -> AsyncIterator[Any]:
        yield (DeviceHealth("things", "ghost", "Healthy"),)
        await asyncio.Event().wait()

    plugin.health_lists = ghosts  # type: ignore[method-assign]


def shares_its_socket(plugin: Plugin) -> None:
    """Two instances use one service socket."""
    plugin.dra_socket = plugin.places.data_dir / "dra.sock"


def none(plugin: Plugin) -> None:
    """Sound."""


DEFECTS: dict[str, Callable[[Plugin], None]] = {
    breakage.__name__: breakage
    for breakage in (
        none,
        not_idempotent,
        gives_twice,
        unknown_is_an_error,
        unprepare_reads_the_api,
        forgets_an_entry,
        one_fails_all,
        believes_the_name,
        believes_the_call,
        keeps_nothing,
        writes_in_place,
        starts_empty,
        leaves_cdi,
        wrong_cdi_name,
        blind_to_reboots,
        publishes_once,
        wrong_count,
        leaves_sockets,
        deaf_to_sigterm,
        health_only_once,
        health_of_ghosts,
        shares_its_socket,
    )
}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("defect", choices=DEFECTS)
    for flag in ("--kubeconfig", "--node", "--root", "--cdi", "--boot-id", "--pod-uid"):
        parser.add_argument(flag, default="")
    return parser


async def main(args: argparse.Namespace) -> None:
    clock, entropy = Clock(), Entropy()
    client: Client = HttpClient(load([Path(args.kubeconfig)]), clock, entropy)
    places = Places.under(Path(args.root), Broken.name, Path(args.cdi))
    plugin = Plugin(
        Broken(),
        client,
        clock,
        entropy,
        node_name=args.node,
        places=places,
        options=PluginOptions(pod_uid=args.pod_uid, boot_id=args.boot_id, durable=False),
    )
    work = asyncio.ensure_future(plugin.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    DEFECTS[args.defect](plugin)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await client.close()


if __name__ == "__main__":
    try:
        asyncio.run(main(arguments().parse_args()))
    except DragomanError as error:
        sys.exit(str(error))
