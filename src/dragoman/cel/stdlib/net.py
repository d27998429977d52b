"""What does an address say? IP addresses and networks, without zones and without IPv4 inside IPv6."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import free, member
from dragoman.cel.values import STRICT_EQUALITY, TYPE_OF

IP_TYPE: Final = t.opaque("net.IP")
CIDR_TYPE: Final = t.opaque("net.CIDR")
_BITS = re.compile(r"0|[1-9][0-9]{0,2}")
_BROADCAST: Final = IPv4Address("255.255.255.255")


class IP:
    """An address."""

    __slots__ = ("address",)

    def __init__(self, address: IPv4Address | IPv6Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IP) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __str__(self) -> str:
        return str(self.address)

    def __len__(self) -> int:
        return self.address.max_prefixlen // 8


class CIDR:
    """A network: an address, which may have bits beyond the prefix, and the length of the prefix."""

    __slots__ = ("bits", "ip")

    def __init__(self, ip: IP, bits: int) -> None:
        self.ip = ip
        self.bits = bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CIDR) and self.ip == other.ip and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.ip, self.bits))

    def __str__(self) -> str:
        return f"{self.ip}/{self.bits}"

    def __len__(self) -> int:
        return -(-self.bits // 8)

    def covers(self, ip: IP, bits: int) -> bool:
        """Whether all addresses that share the first bits of ip are inside."""
        if ip.address.version != self.ip.address.version or bits < self.bits:
            return False
        shift = self.ip.address.max_prefixlen - self.bits
        return int(ip.address) >> shift == int(self.ip.address) >> shift


TYPE_OF[IP] = IP_TYPE
TYPE_OF[CIDR] = CIDR_TYPE
STRICT_EQUALITY.update((IP, CIDR))


def _address(text: str) -> IPv4Address | IPv6Address:
    if ":" in text:
        return IPv6Address(text)
    return IPv4Address(text)


def _ip(text: str) -> IP:
    if "%" in text and ":" in text:
        raise EvalError(
            f'IP address "{text}" with zone value is not allowed: IP Address with zone value is not allowed'
        )
    try:
        address = _address(text)
    except AddressValueError as error:
        raise EvalError(f"IP Address '{text}' parse error during conversion from string: {error}") from None
    _refuse_ipv4_in_ipv6(address, text)
    return IP(address)


def _refuse_ipv4_in_ipv6(address: IPv4Address | IPv6Address, text: str) -> None:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise EvalError(f'IPv4-mapped IPv6 address "{text}" is not allowed: IPv4-mapped IPv6 address is not allowed')


def _cidr(text: str) -> CIDR:
    failed = f"network address parse error during conversion from string: '{text}'"
    base, slash, bits = text.rpartition("/")
    if not slash or not _BITS.fullmatch(bits):
        raise EvalError(f"{failed} has no prefix length")
    if "%" in base:
        raise EvalError(f"{failed}: CIDR with zone value is not allowed")
    try:
        address = _address(base)
    except AddressValueError as error:
        raise EvalError(f"{failed}: {error}") from None
    if int(bits) > address.max_prefixlen:
        raise EvalError(f"{failed}: prefix length out of range")
    _refuse_ipv4_in_ipv6(address, text)
    return CIDR(IP(address), int(bits))


def _is(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except EvalError:
        return False
    return True


def _masked(cidr: CIDR) -> CIDR:
    shift = cidr.ip.address.max_prefixlen - cidr.bits
    return CIDR(IP(type(cidr.ip.address)(int(cidr.ip.address) >> shift << shift)), cidr.bits)


def _is_link_local_multicast(ip: IP) -> bool:
    if isinstance(ip.address, IPv4Address):
        return int(ip.address) >> 8 == 0xE00000
    packed = ip.address.packed
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _is_global_unicast(ip: IP) -> bool:
    address = ip.address
    local = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return address != _BROADCAST and not local


OVERLOADS: Final = [
    free("ip", "string_to_ip", (t.STRING,), IP_TYPE, _ip),
    member("family", "ip_family", (IP_TYPE,), t.INT, lambda ip: ip.address.version),
    free("ip.isCanonical", "ip_is_canonical", (t.STRING,), t.BOOL, lambda text: str(_ip(text)) == text),
    member("isUnspecified", "ip_is_unspecified", (IP_TYPE,), t.BOOL, lambda ip: ip.address.is_unspecified),
    member("isLoopback", "ip_is_loopback", (IP_TYPE,), t.BOOL, lambda ip: ip.address.is_loopback),
    member("isLinkLocalMulticast", "ip_is_link_local_multicast", (IP_TYPE,), t.BOOL, _is_link_local_multicast),
    member("isLinkLocalUnicast", "ip_is_link_local_unicast", (IP_TYPE,), t.BOOL, lambda ip: ip.address.is_link_local),
    member("isGlobalUnicast", "ip_is_global_unicast", (IP_TYPE,), t.BOOL, _is_global_unicast),
    free("isIP", "is_ip", (t.STRING,), t.BOOL, lambda text: _is(_ip, text)),
    free("string", "ip_to_string", (IP_TYPE,), t.STRING, str),
    free("cidr", "string_to_cidr", (t.STRING,), CIDR_TYPE, _cidr),
    member(
        "containsIP",
        "cidr_contains_ip_string",
        (CIDR_TYPE, t.STRING),
        t.BOOL,
        lambda cidr, text: cidr.covers(_ip(text), len(_ip(text)) * 8),
    ),
    member(
        "containsIP", "cidr_contains_ip_ip", (CIDR_TYPE, IP_TYPE), t.BOOL, lambda cidr, ip: cidr.covers(ip, len(ip) * 8)
    ),
    member(
        "containsCIDR",
        "cidr_contains_cidr_string",
        (CIDR_TYPE, t.STRING),
        t.BOOL,
        lambda cidr, text: cidr.covers(_cidr(text).ip, _cidr(text).bits),
    ),
    member(
        "containsCIDR",
        "cidr_contains_cidr",
        (CIDR_TYPE, CIDR_TYPE),
        t.BOOL,
        lambda cidr, other: cidr.covers(other.ip, other.bits),
    ),
    member("ip", "cidr_ip", (CIDR_TYPE,), IP_TYPE, lambda cidr: cidr.ip),
    member("prefixLength", "cidr_prefix_length", (CIDR_TYPE,), t.INT, lambda cidr: cidr.bits),
    member("masked", "cidr_masked", (CIDR_TYPE,), CIDR_TYPE, _masked),
    free("isCIDR", "is_cidr", (t.STRING,), t.BOOL, lambda text: _is(_cidr, text)),
    free("string", "cidr_to_string", (CIDR_TYPE,), t.STRING, str),
]
