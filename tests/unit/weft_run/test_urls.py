"""Valid URLs of replicas and Redis servers."""

from __future__ import annotations

import pytest
from weft_run.urls import address, allowed_host, named_replica, origin, redis_url, replica_url


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("http://a:8001", "http://a:8001"),
        ("https://gpu-0.rack_1.example.com.", "https://gpu-0.rack_1.example.com."),
        ("http://h/v1/", "http://h"),
        ("http://h/prefix/v1", "http://h/prefix"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("http://[::1]:65535", "http://[::1]:65535"),
        ("HTTP://H", "HTTP://H"),
    ],
)
def test_a_replicas_url_is_cleaned(text: str, cleaned: str) -> None:
    assert replica_url(text) == cleaned


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:8001", "http://"),
        ("ftp://a", "http://"),
        ("http://", "no host"),
        ("http://:80", "no host"),
        ("http://h:notaport", "notaport"),
        ("http://h:99999", "port"),
        ("http://h:0", "port"),
        ("http://h:", "port"),
        ("http://[::1", "URL"),
        ("http://[::g]", "URL"),
        ("http://a..b:80", "'a..b'"),
        ("http://-a", "'-a'"),
        ("http://a_b.c-", "'a_b.c-'"),
        ("http://" + "a" * 64, "host"),
        ("http://256.1.1.1", "'256.1.1.1'"),
        ("http://h?x=1", "query"),
        ("http://h?", "query"),
        ("http://h/v1#top", "fragment"),
        ("http://h/a b", "characters"),
        ("http://h\n", "characters"),
        ("http://né", "characters"),
    ],
)
def test_invalid_replica_url_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as raised:
        replica_url(text)
    assert why in str(raised.value)


def test_password_in_a_replica_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="WEFT_REPLICA_API_KEY") as raised:
        replica_url("http://me:hunter2@h:80")
    assert "hunter2" not in str(raised.value)


def test_equivalent_urls_have_one_address() -> None:
    assert address("http://H:80/") == address("HTTP://h")
    assert address("https://h") == address("https://h:443")
    assert len({address(f"http://{x}") for x in ("h", "h:81", "i", "h/a")}) == 4
    assert address("http://h") != address("https://h:80")


@pytest.mark.parametrize(
    "text",
    [
        "redis://h",
        "redis://h:6379/",
        "redis://h:6379/3",
        "rediss://me:pa%20ss@h.example/0?socket_timeout=3",
        "redis://:p@[::1]:7",
        "unix:///run/redis.sock?db=2",
    ],
)
def test_redis_url_is_accepted(text: str) -> None:
    assert redis_url(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("h:6379", "redis://"),
        ("http://h", "redis://"),
        ("redis://", "no host"),
        ("redis://h:abc", "abc"),
        ("redis://h:70000", "port"),
        ("redis://[::1", "URL"),
        ("redis://a..b", "'a..b'"),
        ("redis://h/notadb", "notadb"),
        ("redis://h/1/2", "1/2"),
        ("redis://h/-1", "-1"),
        ("redis://h#1", "fragment"),
        ("redis://h?db=x", "db"),
        ("redis://h?colour=red", "colour"),
        ("redis://h\n", "characters"),
        ("unix://", "path"),
    ],
)
def test_invalid_redis_url_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as raised:
        redis_url(text)
    assert why in str(raised.value)


@pytest.mark.parametrize("rest", ["@h:abc", "@h/x", "@h?colour=red", "@h#x", "@a..b"])
def test_redis_password_is_not_shown(rest: str) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*hunter2)"):
        redis_url(f"redis://:hunter2{rest}")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("http://replica-0:8001", "replica-0:8001"),
        ("HTTP://Replica-0:8001/v1/", "replica-0:8001"),
        ("http://h", "h:80"),
        ("https://h", "h:443"),
        ("http://10.0.0.5:8001/engine/v1", "10.0.0.5:8001/engine"),
        ("http://[::1]:8001", "[::1]:8001"),
        ("http://h/a=b", "h:80/a-b"),
        ("http://h/~me/x-1", "h:80/~me/x-1"),
        ("gpu-0=http://10.0.0.5:8001", "gpu-0"),
        ("rack1:a_b.c=https://h/x=y", "rack1:a_b.c"),
    ],
)
def test_a_replica_is_named_by_its_address_or_explicitly(text: str, name: str) -> None:
    found, url = named_replica(text)
    assert (found, url) == (name, replica_url(text.removeprefix(f"{name}=")))


def test_names_of_long_addresses_are_short_stable_and_differ() -> None:
    texts = [f"http://{'a' * 60}.{'b' * 60}.example:8001/{end}" for end in ("one", "two")]
    names = [named_replica(text)[0] for text in texts]
    assert names == [named_replica(text)[0] for text in texts]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {64}


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "x" * 65, 'a"b', "n\u00e9", "a,b"])
def test_invalid_replica_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"not a valid replica name: .* letters, digits"):
        named_replica(f"{name}=http://h")


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("*", "*"),
        ("https://a.example/", "https://a.example"),
        ("HTTPS://A.example:443", "https://a.example"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_origin_is_normalized_to_the_browsers_form(text: str, sent: str) -> None:
    assert origin(text) == sent


@pytest.mark.parametrize(
    "text", ["a.example", "https://a/b", "https://a?b", "https://u@a", "https://"]
)
def test_invalid_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"origin|https?://"):
        origin(text)


def test_an_allowed_host_has_an_optional_port() -> None:
    assert allowed_host("My_API.example") == ("my_api.example", "")
    assert allowed_host("[::1]:080") == ("[::1]", "80")


@pytest.mark.parametrize(
    "text", ["", "http://a", "a/b", "a b", "*", "*.a", "a:", "a:0", "a:65536", "::1", "u@a"]
)
def test_an_invalid_allowed_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST or HOST:PORT|a port must be"):
        allowed_host(text)
