"""How do a driver's DeviceClasses get into the API? Created where they are missing; what is there stays its owner's."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.errors import NotFound, Stale

DEVICE_CLASS = kind_of("DeviceClass")


async def install_classes(client: Client, classes: Iterable[Object]) -> None:
    """Create those that are not there. Raises as Client does."""
    for body in classes:
        try:
            await client.get(DEVICE_CLASS, body["metadata"]["name"])
        except NotFound:
            with suppress(Stale):
                await client.create(DEVICE_CLASS, body)
