"""Which addresses may be asked: a table of hostile ones, and that the check is what stops them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.settings import NetworkSettings
from curate.sources.addresses import (
    AddressInfo,
    HostPort,
    check_address,
    parse_allow_host,
    parse_url,
    resolve,
)
from curate.sources.connections import GuardedPools, Resolver
from curate.sources.http import Fetcher, FetchFailed
from tests.sources.servers import LoopbackServer

#: Ways to write this machine that lead here with a common resolver.
LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "017700000001",
    "0.0.0.0",
    "0",
    "localhost",
    "LOCALHOST.",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "127.0.0.1.",
    "１２７.０.０.１",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
]

#: Others that must not be asked either.
FORBIDDEN = [
    "127.0.0.2",
    "[::1]",
    "[::]",
    "sub.localhost",
    "169.254.169.254",
    "0xA9FEA9FE",
    "2852039166",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::1]",
    "[2002:a9fe:a9fe::1]",
    "[2002:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",  # Teredo, client 127.0.0.1
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fc00::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[::127.0.0.1]",
    "[2606:4700:10::5efe:7f00:1]",  # ISATAP, in all its spellings
    "[2606:4700:10:0:0:5efe:10.0.0.1]",
    "[2606:4700:10::200:5efe:a9fe:a9fe]",
    "[2606:4700:10::100:5efe:c0a8:1]",
    "[2606:4700:10::300:5efe:a00:1]",
    "[2002:5db8:d70e::5efe:a00:1]",
    "[3fff::1]",
    "[3fff:fff:ffff:ffff::1]",
    "[2001:db8::1]",
    "[2001:2::1]",
    "[2001:1ff::1]",
    "[5f00::1]",
    "[100::1]",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.100.100.200",
    "100.64.0.1",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "metadata.google.internal",
    "metadata.goog",
]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        running.serve("/secret", b"a key", "text/plain")
        yield running


def unchecked(host: str, port: int, allow: Iterable[HostPort]) -> Sequence[AddressInfo]:
    """The planted fault: what every other client does."""
    return socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)


def fetcher(resolver: Resolver, server: LoopbackServer) -> Fetcher:
    """One whose port 80 is the server's, so that the rule on ports does not help out."""

    def moved(host: str, port: int, allow: Iterable[HostPort]) -> Sequence[AddressInfo]:
        found = resolver(host, port, allow)
        return [(*entry[:4], (entry[4][0], server.port, *entry[4][2:])) for entry in found]

    settings = NetworkSettings(connect_seconds=60, read_seconds=60, total_seconds=120)
    return Fetcher(settings, "test/1", GuardedPools(settings, moved))


def fetch(with_fetcher: Fetcher, url: str) -> bytes:
    with with_fetcher.open(url, max_bytes=1000) as answer:
        return b"".join(answer.chunks())


@pytest.mark.parametrize("host", LOOPBACK + FORBIDDEN)
def test_no_private_address_is_asked(server: LoopbackServer, host: str) -> None:
    with pytest.raises(FetchFailed) as failed:
        fetch(fetcher(resolve, server), f"http://{host}/secret")
    assert failed.value.state == "forbidden_address"
    assert not failed.value.retryable
    assert server.hits() == 0


@pytest.mark.parametrize("host", LOOPBACK)
def test_without_the_check_the_same_addresses_reach_this_machine(
    server: LoopbackServer, host: str
) -> None:
    assert fetch(fetcher(unchecked, server), f"http://{host}/secret") == b"a key"


@pytest.mark.parametrize("host", [*LOOPBACK, *FORBIDDEN])
def test_no_redirect_leads_to_a_private_address(server: LoopbackServer, host: str) -> None:
    server.on("/away", lambda exchange: exchange.redirect(f"http://{host}/secret"))
    settings = NetworkSettings(allow_hosts=(server.allow_host,), connect_seconds=60)
    with pytest.raises(FetchFailed) as failed:
        fetch(Fetcher(settings, "test/1"), server.url("/away"))
    assert failed.value.state == "forbidden_address"
    assert [request.path for request in server.requests] == ["/away"]


def test_a_name_that_leads_to_a_public_and_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = [*entries("93.184.215.14"), *entries("10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(FetchFailed) as failed:
        resolve("photos.example", 443)
    assert failed.value.state == "forbidden_address"


def entries(address: str, port: int = 80) -> list[AddressInfo]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]


class Rebinding:
    """A name that is public when it is checked and this machine when it is asked again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        self.lookups = 0
        self.connected: list[Any] = []
        real = socket.socket.connect

        def getaddrinfo(*_: Any, **__: Any) -> list[AddressInfo]:
            self.lookups += 1
            return entries("93.184.215.14") if self.lookups == 1 else entries("127.0.0.1", port)

        def connect(sock: socket.socket, address: Any) -> None:
            self.connected.append(address)
            if not str(address[0]).startswith("127."):
                raise ConnectionRefusedError("not from a test")
            real(sock, address)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(socket.socket, "connect", connect)


def test_the_address_that_was_checked_is_the_one_connected_to(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebinding = Rebinding(monkeypatch, server.port)
    with pytest.raises(FetchFailed) as failed:
        fetch(Fetcher(NetworkSettings(), "test/1"), "http://rebinding.example/secret")
    assert failed.value.state == "connection"
    assert rebinding.lookups == 1
    assert rebinding.connected == [("93.184.215.14", 80)]
    assert server.hits() == 0


def test_a_client_that_looks_up_again_is_led_astray(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebinding = Rebinding(monkeypatch, server.port)
    resolve("rebinding.example", 80)
    answer = urllib3.PoolManager().request("GET", "http://rebinding.example/secret", retries=False)
    assert answer.data == b"a key"
    assert rebinding.lookups == 2


@pytest.mark.parametrize("port", [22, 25, 8080, 6379, 81, 65535])
def test_only_the_ports_of_the_web_are_asked(port: int) -> None:
    with pytest.raises(FetchFailed) as failed:
        resolve("93.184.215.14", port)
    assert failed.value.state == "forbidden_address"
    assert resolve("93.184.215.14", port, [HostPort("93.184.215.14", port)])


def test_an_exempt_host_and_port_is_asked_and_nothing_else(server: LoopbackServer) -> None:
    with LoopbackServer() as other:
        other.serve("/secret", b"another key")
        asking = Fetcher(NetworkSettings(allow_hosts=(server.allow_host,)), "test/1")
        assert fetch(asking, server.url("/secret")) == b"a key"
        server.on("/away", lambda exchange: exchange.redirect(other.url("/secret")))
        for url in (other.url("/secret"), server.url("/away"), server.url("/secret", "localhost")):
            with pytest.raises(FetchFailed) as failed:
                fetch(asking, url)
            assert failed.value.state == "forbidden_address"
        assert other.hits() == 0


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("Photos.Example.", "photos.example", None),
        ("[::1]:81", "::1", 81),
        ("[::1]", "::1", None),
        ("bücher.example", "xn--bcher-kva.example", None),
        (" localhost ", "localhost", None),
    ],
)
def test_exempt_hosts_are_read(text: str, host: str, port: int | None) -> None:
    assert parse_allow_host(text) == HostPort(host, port)


@pytest.mark.parametrize(
    "text", ["", ":80", "::1", "host:port", "host:0", "host:99999", "http://host", "a b", "*"]
)
def test_what_is_no_host_is_no_exemption(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_allow_host(text)


def test_a_host_without_port_is_exempt_on_the_ports_of_the_web_alone() -> None:
    entry = parse_allow_host("intranet")
    assert [entry.exempts("intranet", port) for port in (80, 443, 8080)] == [True, True, False]
    assert not entry.exempts("www.intranet", 80)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http://Example.ORG", "http://example.org/"),
        ("HTTPS://example.org:443/a?b=1#c", "https://example.org/a?b=1"),
        ("http://example.org:8080/a", "http://example.org:8080/a"),
        ("http://example.org./a", "http://example.org/a"),
        ("http://example.org:/a", "http://example.org/a"),
        (" http://example.org/a b.jpg\n", "http://example.org/a%20b.jpg"),
        ("http://example.org/é?q=ü ö", "http://example.org/%C3%A9?q=%C3%BC%20%C3%B6"),
        ("http://example.org/100%/%41", "http://example.org/100%25/%41"),
        ("http://example.org?q", "http://example.org/?q"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://my_bucket.s3.example/", "http://my_bucket.s3.example/"),
        ("http://r3---sn.example/", "http://r3---sn.example/"),
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/"),
        ("http://example.org//a/../b", "http://example.org//a/../b"),
    ],
)
def test_addresses_are_read_and_repaired(text: str, told: str) -> None:
    assert str(parse_url(text)) == told
    assert parse_url(told) == parse_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "photo.jpg",
        "//example.org/a",
        "file:///etc/passwd",
        "ftp://example.org/a",
        "javascript:alert(1)",
        "data:image/png;base64,AAAA",
        "http:/example.org",
        "http://",
        "http:///a",
        "http://user:password@example.org/",
        "http://example.com\\@127.0.0.1/",
        "http://example.org\\a",
        "http://exam ple.org/",
        "http://example.org\t/",
        "http://example.org/a\r\nHost: other",
        "http://example.org/\x00",
        "http://example.org/\ud800",
        "http://example.org:port/",
        "http://example.org:80:80/",
        "http://example.org:0/",
        "http://example.org:٨٠/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[127.0.0.1]/",
        "http://%31%32%37.0.0.1/",
        "http://a..b/",
        "http://.a/",
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 130 + "example/",
        "http://xn--\u0661.example/",
        "http://example.org/" + "a" * 9000,
    ],
)
def test_what_is_no_address_of_the_web_is_refused(text: str) -> None:
    with pytest.raises(FetchFailed) as failed:
        parse_url(text)
    assert failed.value.state == "bad_url"
    assert "password" not in str(failed.value)
    assert "\n" not in str(failed.value)


@given(st.text(max_size=80), st.booleans())
def test_any_text_is_an_address_that_reads_the_same_again_or_is_refused(
    text: str, with_scheme: bool
) -> None:
    try:
        url = parse_url(f"http://{text}" if with_scheme else text)
    except FetchFailed:
        return
    assert parse_url(str(url)) == url
    assert str(url).isascii()
    assert url.host == url.host.lower()


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("/b", "https://example.org/b"),
        ("c?d=1", "https://example.org/a/c?d=1"),
        ("//other.example/x", "https://other.example/x"),
        ("http://other.example/x y", "http://other.example/x%20y"),
        ("/älg", "https://example.org/%C3%A4lg"),
        ("/älg".encode().decode("latin-1"), "https://example.org/%C3%A4lg"),
    ],
)
def test_redirects_are_joined(location: str, told: str) -> None:
    assert str(parse_url("https://example.org/a/b").join(location)) == told


@given(st.ip_addresses())
def test_no_address_passes_that_python_calls_private(address: Any) -> None:
    if check_address(address) is None:
        assert address.is_global or address.version == 6
        assert not address.is_multicast
        assert not address.is_link_local


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_public_addresses_pass(address: str) -> None:
    assert check_address(address) is None


def test_a_name_that_leads_nowhere_says_so() -> None:
    with pytest.raises(FetchFailed) as failed:
        resolve("nowhere.invalid", 80)
    assert failed.value.state == "dns"
