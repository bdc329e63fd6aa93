"""Which addresses may be asked: public ones, on the ports of the web.

A list of URLs, an API's answer or a redirect may name any host. Whoever can make this program fetch
an address could otherwise reach what only this machine can: services on loopback, machines of the
local network, the cloud's metadata with its keys. So a name is resolved once, every address it
leads to is checked, and the connection goes to an address that was checked.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import quote, urljoin

from curate.errors import UsageError
from curate.files import printable
from curate.sources.failures import FetchFailed

#: What `socket.getaddrinfo` gives: family, type, protocol, canonical name, address.
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 8000

_URL = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What may stand in a path and a query beside letters and digits (RFC 3986).
_PATH, _QUERY = "/%:@!$&'()*+,;=~-._", "/?%:@!$&'()*+,;=~-._"

_NAMES = frozenset(
    (
        "localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
        "instance-data",
        "instance-data.ec2.internal",
    )
)
_NAME_ENDS = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa")

# Not global, or not somebody's own: `is_global` misses or missed these in one Python or another.
_DENIED = {
    "0.0.0.0/8": "this network",
    "169.254.0.0/16": "link-local",
    "100.64.0.0/10": "shared",
    "192.0.0.0/24": "protocol assignment",
    "192.88.99.0/24": "relay",
    "168.63.129.16/32": "cloud's own",
    "2001::/23": "protocol assignment",
    "2001:db8::/32": "documentation",
    "3fff::/20": "documentation",
}
_DENIED_NETWORKS = [(kind, ip_network(text)) for text, kind in _DENIED.items()]
_GLOBAL_UNICAST = ip_network("2000::/3")
_NAT64 = ip_network("64:ff9b::/96")
# Before the last 32 bits, in any network (RFC 5214); the mask leaves out what tells local from
# global, and one from many.
_ISATAP, _ISATAP_MASK = 0x0000_5EFE, 0xFCFF_FFFF


@dataclass(frozen=True)
class HostPort:
    """A host that is exempt from the rules on addresses and ports.

    Attributes:
        host: as `parse_url` gives it.
        port: the one port that is exempt; None for 80 and 443.
    """

    host: str
    port: int | None = None

    def exempts(self, host: str, port: int) -> bool:
        """Whether it is this host and port."""
        return host == self.host and (
            port == self.port if self.port is not None else port in _PORTS.values()
        )


@dataclass(frozen=True)
class Url:
    """A normalised address.

    Attributes:
        scheme: "http" or "https".
        host: lower case, ASCII, without a dot at the end; IPv6 without brackets.
        port: the port, also where it is the scheme's own.
        target: path and query, percent-encoded.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        """Scheme, host and port, as a browser would tell origins apart."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    def __str__(self) -> str:
        return self.origin + self.target

    def join(self, location: str) -> Url:
        """The address that a redirect leads to.

        Args:
            location: a Location header, absolute or relative.

        Raises:
            FetchFailed: "bad_url".
        """
        # Headers arrive as Latin-1; many servers mean UTF-8.
        with suppress(UnicodeError):
            location = location.encode("latin-1").decode("utf-8")
        location = location.strip(" ")
        _refuse_control(location)
        try:
            return parse_url(urljoin(str(self), location))
        except ValueError:
            raise FetchFailed("bad_url", "a redirect to what is no address") from None


@lru_cache(maxsize=4096)
def parse_url(text: str) -> Url:
    """Read an address as somebody wrote it.

    Blanks and letters outside ASCII in the path or query are percent-encoded, a host's name in any
    script becomes what the domain name system knows.

    Args:
        text: for example "https://example.org/photos/älg 1.jpg".

    Raises:
        FetchFailed: "bad_url": no http or https address, or one with credentials, backslashes or
            control characters. The detail repeats no credentials.
    """
    text = text.strip(" \t\r\n")
    if len(text) > _LONGEST_URL:
        raise FetchFailed("bad_url", f"longer than {_LONGEST_URL:,} characters")
    _refuse_control(text)
    found = _URL.fullmatch(text)
    if found is None:
        other = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,20}(?=:)", text)
        what = f"the scheme {other[0].lower()}" if other else "an address without http or https"
        raise FetchFailed("bad_url", what)
    scheme, authority, path, query = found[1].lower(), found[2], found[3], found[4]
    if "@" in authority:
        raise FetchFailed("bad_url", "an address with credentials")
    host, port = _split_port(authority)
    target = _encode(path or "/", _PATH) + ("" if query is None else "?" + _encode(query, _QUERY))
    return Url(scheme, _normal_host(host), _PORTS[scheme] if port is None else port, target)


def _refuse_control(text: str) -> None:
    if _CONTROL.search(text):
        raise FetchFailed("bad_url", "a backslash or a control character")


def _encode(text: str, safe: str) -> str:
    return quote(_STRAY_PERCENT.sub("%25", text), safe=safe)


def _split_port(authority: str) -> tuple[str, int | None]:
    """Host and port of "host", "host:80" or "[::1]:80"."""
    found = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?", authority, re.ASCII)
    port = int(found[2]) if found and found[2] else None
    if found is None or not found[1] or (port is not None and not 0 < port < 65536):
        raise FetchFailed("bad_url", f"no host and port: {authority[:100]!r}")
    return found[1], port


def _normal_host(host: str) -> str:
    if host.startswith("["):
        with suppress(ValueError):
            address = IPv6Address(host[1:-1])
            if address.scope_id is None:
                return str(address)
        raise FetchFailed("bad_url", f"no IPv6 address: {host[:100]!r}")
    plain = host.lower()
    if not plain.isascii():
        import idna

        try:
            plain = idna.encode(host, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError):
            raise FetchFailed("bad_url", f"no host's name: {printable(host)[:100]!r}") from None
    plain = plain.removesuffix(".")
    if len(plain) > 253 or not all(_LABEL.fullmatch(label) for label in plain.split(".")):
        raise FetchFailed("bad_url", f"no host's name: {host[:100]!r}")
    return plain


def parse_allow_host(text: str) -> HostPort:
    """Read what `--allow-host` and `network.allow_hosts` name.

    Args:
        text: "HOST" or "HOST:PORT"; an IPv6 address stands in brackets.

    Raises:
        UsageError: it is neither.
    """
    try:
        host, port = _split_port(text.strip())
        return HostPort(_normal_host(host), port)
    except FetchFailed:
        raise UsageError(
            f"cannot read the host {printable(text)!r}: write HOST or HOST:PORT, "
            "an IPv6 address in brackets"
        ) from None


def check_address(address: IPv4Address | IPv6Address | str) -> str | None:
    """Why an IP address may not be asked.

    Args:
        address: an address, or its text.

    Returns:
        What it is, for example "a loopback address"; None for a public one. An IPv6 address that
        stands for one of IPv4 (mapped, NAT64, 6to4, Teredo, ISATAP) is judged by that one as well.
    """
    ip = ip_address(address) if isinstance(address, str) else address
    for inner in _embedded(ip):
        if (why := check_address(inner)) is not None:
            return why
    if ip.is_loopback:
        return "a loopback address"
    if ip.is_unspecified:
        return "the unspecified address"
    if ip.is_link_local:
        return "a link-local address"
    if ip.is_multicast:
        return "a multicast address"
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None or ip in _NAT64:
            return None
        if ip not in _GLOBAL_UNICAST:
            return "a private address"
        if ip.sixtofour is not None or ip.teredo is not None:
            return None
    for kind, network in _DENIED_NETWORKS:
        if ip in network:
            return f"a {kind} address"
    if not ip.is_global or ip.is_reserved:
        return "a private address"
    return None


def _embedded(ip: IPv4Address | IPv6Address) -> list[IPv4Address]:
    if isinstance(ip, IPv4Address):
        return []
    found = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64 or int(ip) >> 32 & _ISATAP_MASK == _ISATAP:
        found.append(IPv4Address(int(ip) & 0xFFFFFFFF))
    return [inner for inner in found if inner is not None]


def resolve(host: str, port: int, allow: Iterable[HostPort] = ()) -> Sequence[AddressInfo]:
    """The addresses of a host that may be connected to.

    Args:
        host: as `parse_url` gives it.
        port: the port.
        allow: hosts that the rules do not hold for.

    Returns:
        At least one entry of `socket.getaddrinfo`; every one has passed.

    Raises:
        FetchFailed: "forbidden_address" if one of the addresses, the host's name or the port is
            forbidden; "dns" if there is none.
    """
    exempt = any(entry.exempts(host, port) for entry in allow)
    if not exempt:
        _check_name(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        passing = error.errno not in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None))
        raise FetchFailed("dns", f"{host}: {error.strerror}", retryable=passing) from None
    except (OSError, UnicodeError) as error:
        raise FetchFailed("dns", f"{host}: {error}", retryable=False) from None
    if not found:
        raise FetchFailed("dns", f"{host} has no address", retryable=False)
    if not exempt:
        for entry in found:
            if (why := check_address(str(entry[4][0]))) is not None:
                raise FetchFailed("forbidden_address", f"{host} leads to {why}")
    return found


def _check_name(host: str, port: int) -> None:
    if port not in _PORTS.values():
        raise FetchFailed("forbidden_address", f"port {port}; only 80 and 443 are asked")
    if host in _NAMES or host.endswith(_NAME_ENDS):
        raise FetchFailed("forbidden_address", f"{host} is a name of this machine or network")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        # 0x7f.1, 017700000001 and 2130706433 are all 127.0.0.1 to some resolver.
        try:
            IPv4Address(host)
        except ValueError:
            raise FetchFailed("forbidden_address", f"{host}: an oddly written address") from None
