"""Which address has a pod? The lowest free one of the node's range. Addresses are simulated: nothing answers there."""

from __future__ import annotations

import ipaddress

from dragoman.errors import Invalid


class IpPool:
    """Addresses of one node by pod uid; the first two of the range are the network's and the node's."""

    def __init__(self, cidr: str) -> None:
        try:
            self.network = ipaddress.ip_network(cidr)
        except ValueError as error:
            raise Invalid("pod CIDR", f"must be a network such as 10.244.1.0/24: {error}") from error
        self._offsets: dict[str, int] = {}
        self._used: set[int] = set()

    @property
    def first(self) -> str:
        """The node's own address in the range."""
        return str(self.network[1])

    def take(self, uid: str) -> str:
        """The pod's address; the same when it has one. When the range is full, the last address is shared."""
        if uid not in self._offsets:
            last = self.network.num_addresses - 2
            offset = next((n for n in range(2, last) if n not in self._used), last)
            self._offsets[uid] = offset
            self._used.add(offset)
        return str(self.network[self._offsets[uid]])

    def adopt(self, uid: str, address: str) -> None:
        """The pod had this address before."""
        try:
            offset = int(ipaddress.ip_address(address)) - int(self.network.network_address)
        except ValueError:
            return
        if 0 <= offset < self.network.num_addresses:
            self._offsets[uid] = offset
            self._used.add(offset)

    def release(self, uid: str) -> None:
        """The pod needs it no longer."""
        offset = self._offsets.pop(uid, None)
        if offset is not None:
            self._used.discard(offset)
