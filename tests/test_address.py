"""URLs of servers: what they mean, what they may not say, and that no message shows a password."""

from __future__ import annotations

import pickle

import pytest

from tidelog.address import PORT_DEFAULT, URL_DEFAULT, ServerAddress
from tidelog.errors import BadAddress


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (URL_DEFAULT, ServerAddress("127.0.0.1", 6399)),
        ("redis://h", ServerAddress("h", PORT_DEFAULT)),
        ("redis://", ServerAddress("127.0.0.1", PORT_DEFAULT)),
        ("redis://h:1/3", ServerAddress("h", 1, database=3)),
        ("rediss://:p%40ss@h:1", ServerAddress("h", 1, is_tls=True, password="p@ss")),
        ("redis://u:p@[::1]:2", ServerAddress("::1", 2, username="u", password="p")),
        ("redis://:%FF@h", ServerAddress("h", password="\udcff")),
        ("unix:///run/t.sock", ServerAddress(path="/run/t.sock")),
        ("unix://:p@/run/a%20b", ServerAddress(path="/run/a b", password="p")),
    ],
)
def test_urls(url: str, expected: ServerAddress) -> None:
    found = ServerAddress.parse(url)
    assert found == expected
    assert ServerAddress.parse(found.url_with_password, database=found.database) == found


def test_no_text_shows_the_password_or_settings() -> None:
    made = ServerAddress.parse("rediss://me:hidden@h:1/2?ssl_password=hidden", takes_settings=True)
    assert made.url == "rediss://h:1"
    assert "hidden" not in repr(made)
    assert pickle.loads(pickle.dumps(made)).password == "hidden"
    assert made.settings == "ssl_password=hidden"


def test_a_database_comes_from_the_url_or_the_option() -> None:
    assert ServerAddress.parse("redis://h/2").database == 2
    assert ServerAddress.parse("redis://h/2", database=2).database == 2
    assert ServerAddress.parse("redis://h", database=2).database == 2
    assert ServerAddress.parse("unix:///run/s", database=2).database == 2
    for url, option in (("redis://h/2", 1), ("redis://h/2", 0), ("redis://h/0", 1)):
        with pytest.raises(BadAddress, match=f"it names database {url[-1]}, but the option says {option}"):
            ServerAddress.parse(url, database=option)


@pytest.mark.parametrize("url", ["redis://h/2", "unix:///run/s"])
def test_a_cluster_has_neither_databases_nor_a_unix_socket(url: str) -> None:
    assert ServerAddress.parse("redis://h", is_cluster=True).is_cluster
    with pytest.raises(BadAddress, match="a Redis Cluster has neither a unix socket nor databases"):
        ServerAddress.parse(url, is_cluster=True)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:hidden@h:99999", "'redis://...@h:99999' is not the URL of a server: its port is not a number"),
        ("redis://u:hidden@h:x", "its port is not a number"),
        ("redis://:hidden/hidden@h", "its port is not a number"),
        ("redis//:hidden@h", "'...@h' is not the URL of a server: it must begin with redis://, rediss://, unix:// or"),
        ("hidden:hidden@h", "it must begin with redis://, rediss://, unix:// or redis+sentinel://"),
        ("hidden:hidden+hidden@h", "it must begin with redis://"),
        ("redis+:hid@den://h", "it must begin with redis://"),
        ("http://u:hid@den@h", "unix:// or redis+sentinel://, not with 'http'"),
        ("http+sentinel://:hidden@h/a", "unix:// or redis+sentinel://, not with 'http+sentinel'"),
        ("redis+cluster://:hidden@h", "a Redis Cluster cannot be used here: it must begin with redis://"),
        ("redis://:hidden@h/orders", "what follows the port must be the number of a database"),
        ("redis://u:1/hidden@h", "what follows the port must be the number of a database"),
        ("rediss://:hidden@h?ssl_cert_reqs=none", "settings after a ? are not understood"),
        ("redis://h?password=hidden", "'redis://h' is not the URL of a server: settings after a ?"),
        ("redis://h?password=a@hidden", "'redis://...' is not the URL of a server: settings after a ?"),
        ("unix://:hidden@/run/s?db=1", "settings after a ? are not understood"),
        ("redis://[h", "it is not a URL"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(BadAddress) as caught:
        ServerAddress.parse(url)
    assert says in str(caught.value)
    assert "hid" not in str(caught.value)
    assert str(caught.value).endswith(caught.value.problem)


@pytest.mark.parametrize(
    ("url", "expected", "shown"),
    [
        ("redis+cluster://h", ServerAddress("h", is_cluster=True), "redis://h:6399"),
        (
            "rediss+cluster://u:p@h:1,[::1]:2",
            ServerAddress("h", 1, is_cluster=True, is_tls=True, username="u", password="p", more_hosts=(("::1", 2),)),
            "rediss+cluster://h:1,[::1]:2",
        ),
        (
            "redis+sentinel://:p@h:1,i/orders/3",
            ServerAddress("h", 1, password="p", database=3, service="orders", more_hosts=(("i", 26379),)),
            "redis+sentinel://h:1,i:26379/orders",
        ),
        ("redis+sentinel://h/a%20b", ServerAddress("h", 26379, service="a b"), "redis+sentinel://h:26379/a%20b"),
        (
            "rediss+sentinel://h/a?sentinel_username=me&sentinel_password=a%26b+c",
            ServerAddress("h", 26379, is_tls=True, service="a", sentinel_username="me", sentinel_password="a&b c"),
            "rediss+sentinel://h:26379/a",
        ),
        (
            "redis+sentinel://h/a?sentinel_password_file=/run/secret",
            ServerAddress("h", 26379, service="a", sentinel_password_file="/run/secret"),
            "redis+sentinel://h:26379/a",
        ),
        ("redis://h:1", ServerAddress("h", 1), "redis://h:1"),
        (
            "redis://:p%2C@h:1,i,[::1]:2/3",
            ServerAddress("h", 1, password="p,", database=3, more_hosts=(("i", PORT_DEFAULT), ("::1", 2))),
            "redis://h:1,i:6399,[::1]:2",
        ),
        ("redis://:p,@h:1", ServerAddress("h", 1, password="p,"), "redis://h:1"),
        ("unix:///run/a,b", ServerAddress(path="/run/a,b"), "unix:///run/a%2Cb"),
    ],
)
def test_urls_of_several_servers(url: str, expected: ServerAddress, shown: str) -> None:
    found = ServerAddress.parse(url, takes_cluster=True)
    assert found == expected
    assert found.url == shown
    assert found.hosts == ((found.host, found.port), *found.more_hosts)
    again = ServerAddress.parse(found.url_with_password, database=found.database, is_cluster=found.is_cluster)
    assert again == found


def test_one_of_several_servers_has_their_login_and_a_sentinel_its_own() -> None:
    url = "redis+sentinel://u:p@h,i/a/3?sentinel_username=s&sentinel_password=t&ssl_ca_certs=ca.pem"
    made = ServerAddress.parse(url, takes_settings=True)
    assert made.is_searched
    assert "p" not in repr(made).replace("password_file", "").replace("port", "").replace("path", "")
    server, sentinel = made.server_at("x", 1), made.sentinel_at("i", 2)
    assert server == ServerAddress("x", 1, username="u", password="p", database=3, settings="ssl_ca_certs=ca.pem")
    assert sentinel == ServerAddress("i", 2, username="s", password="t", settings="ssl_ca_certs=ca.pem")
    assert not server.is_searched
    assert not ServerAddress.parse("redis://h,i", is_cluster=True).is_searched, "clients ask a cluster for its nodes"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+cluster://:hidden@h:1,i:x", "its port is not a number"),
        ("redis+cluster://:hidden@h:1,,i", "one of its hosts is empty"),
        ("redis+cluster://:hidden@h/1", "a Redis Cluster has neither a unix socket nor databases"),
        ("redis+sentinel://:hidden@h", "it must name the service after the Sentinels"),
        ("redis+sentinel://:hidden@h/orders/x", "what follows the port must be the number of a database"),
        ("redis+sentinel://:hidden@h/orders?ssl_ca_certs=hidden", "settings after a ? are not understood"),
        ("redis+sentinel://h/a?sentinel_password=hidden&sentinel_password_file=f", "contradict each other"),
        ("redis+sentinel://h/a?sentinel_password=hidden&nonsense=1", "settings after a ? are not understood"),
        ("redis+nonsense://:hidden@h", "it must begin with redis://, rediss://, unix://, redis+sentinel:// or"),
        ("redis://:hidden@h:1,", "one of its hosts is empty"),
        ("redis://:hidden@h:1,i:x/2", "'redis://...@h:1,i:x/2' is not the URL of a server: its port is not a number"),
        ("redis://:hidden@h,i/orders", "what follows the port must be the number of a database"),
        ("redis://:hidden@h,i?password=hidden", "settings after a ? are not understood"),
    ],
)
def test_a_url_of_several_servers_that_is_none_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(BadAddress) as caught:
        ServerAddress.parse(url, takes_cluster=True)
    assert says in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_sentinels_do_not_watch_a_cluster() -> None:
    with pytest.raises(BadAddress, match="Sentinels do not watch a Redis Cluster"):
        ServerAddress.parse("redis+sentinel://h/a", is_cluster=True)
