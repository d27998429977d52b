"""Which claims are prepared on this node, for which pods, as the kubelet's own checkpoint says it?

The file has the kubelet's format (dra_manager_state, checkpoint.dra.kubelet.k8s.io/v1), so the two can take over from
each other. It never calls drivers.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from dragoman.errors import Invalid
from dragoman.node.driver import ClaimRef, PreparedDevice
from dragoman.node.files import write_atomically

FILE = "dra_manager_state"
KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


class _Part(msgspec.Struct, rename="pascal"):
    """Base: the file's keys are Go's field names."""


class PreparedDeviceState(_Part):
    """A prepared device."""

    pool_name: str
    device_name: str
    share_id: str | None = msgspec.field(name="ShareID", default=None)
    request_names: list[str] | None = None
    cdi_ids: list[str] | None = msgspec.field(name="CDIDeviceIDs", default=None)

    def as_prepared(self) -> PreparedDevice:
        """In the SDK's words."""
        requests, ids = tuple(self.request_names or ()), tuple(self.cdi_ids or ())
        return PreparedDevice(requests, self.pool_name, self.device_name, ids, self.share_id)

    @classmethod
    def of(cls, device: PreparedDevice) -> PreparedDeviceState:
        """From what a driver answered."""
        return cls(device.pool, device.device, device.share_id, list(device.requests), list(device.cdi_ids))


class DriverState(_Part, omit_defaults=False):
    """One driver's part of a claim; devices None: none (yet). skip: operations that are not called (KEP-5945)."""

    devices: list[PreparedDeviceState] | None = None
    skip: list[str] | msgspec.UnsetType = msgspec.field(name="SkipNodeOperations", default=msgspec.UNSET)


class ClaimState(_Part):
    """One claim. `prepared` is true once every driver has prepared it in this process; it is not stored."""

    claim_uid: str = msgspec.field(name="ClaimUID")
    claim_name: str
    namespace: str
    pod_uids: dict[str, dict[str, str]] = msgspec.field(name="PodUIDs", default_factory=dict)
    driver_state: dict[str, DriverState] = {}

    @property
    def ref(self) -> ClaimRef:
        """Which claim it is."""
        return ClaimRef(self.namespace, self.claim_name, self.claim_uid)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.claim_name


class _Data(msgspec.Struct):
    kind: str
    api_version: str = msgspec.field(name="apiVersion")
    claims: list[ClaimState] | None = msgspec.field(name="ClaimInfoStateList", default_factory=list)


class _File(msgspec.Struct):
    data: str = msgspec.field(name="Data")
    checksum: int = msgspec.field(name="Checksum")


def devices_of(path: Path, driver: str) -> frozenset[str] | None:
    """Names of the devices that a driver has prepared on the node, by the file; None: some are being prepared, and
    it does not know which. Raises Invalid as `ClaimStates.load`."""
    states = ClaimStates(path)
    states.load()
    parts = [claim.driver_state[driver] for claim in states.claims.values() if driver in claim.driver_state]
    if any(part.devices is None and part.skip is msgspec.UNSET for part in parts):
        return None
    return frozenset(device.device_name for part in parts for device in part.devices or ())


class ClaimStates:
    """The claims by (namespace, name), and their file. Change the values, then `save`."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self.durable = durable
        self.claims: dict[tuple[str, str], ClaimState] = {}
        self.prepared: set[tuple[str, str]] = set()
        """Keys of claims whose drivers have all answered since this process began."""

    def load(self) -> None:
        """Read the file; none is an empty one. Raises Invalid when it cannot be trusted."""
        advice = "drain the node and remove the file"
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        try:
            file = msgspec.json.decode(content, type=_File)
            if zlib.crc32(file.data.encode()) != file.checksum:
                raise Invalid(str(self.path), f"the checksum does not match, the checkpoint is corrupt: {advice}")
            data = msgspec.json.decode(file.data, type=_Data)
        except msgspec.MsgspecError as error:
            raise Invalid(str(self.path), f"is not a DRA checkpoint ({error}): {advice}") from error
        if (data.kind, data.api_version) != (KIND, API_VERSION):
            raise Invalid(str(self.path), f"is a {data.kind} of {data.api_version}, not of {API_VERSION}: {advice}")
        self.claims = {claim.key: claim for claim in data.claims or ()}  # Go writes none as null

    def save(self) -> None:
        """Write the file. Raises OSError."""
        data = msgspec.json.encode(_Data(KIND, API_VERSION, list(self.claims.values()))).decode()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        content = msgspec.json.encode(_File(data, zlib.crc32(data.encode())))
        write_atomically(self.path, content, durable=self.durable)

    def of_pod(self, pod_uid: str) -> list[ClaimState]:
        """Claims that the pod holds."""
        return [claim for claim in self.claims.values() if pod_uid in claim.pod_uids]

    def pods(self) -> set[str]:
        """Uids of all pods that hold a claim."""
        return {uid for claim in self.claims.values() for uid in claim.pod_uids}
