"""Buckets and URLs of object stores: errors, bounds, secrets, credentials. The rest is in `tests/conformance`."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.s3_server import S3Bucket, S3Server, run_s3_server
from tests.system.answering_server import answer, answering
from tidelog import limits
from tidelog.ports import ObjectStore
from tidelog.system.folder_store import UNFINISHED, FolderStore
from tidelog.system.object_store import BucketStore, open_object_store

GIVEN = {"access_key_id": "id-of-the-key", "secret_access_key": "very-secret", "region": "us-east-1"}
CALLS: list[Callable[[ObjectStore], object]] = [
    lambda store: store.put("a/object", [b"x"]),
    lambda store: store.get("a/object"),
    lambda store: store.read("a/object", 0, 1),
    lambda store: store.size("a/object"),
    lambda store: store.list("a/object"),
    lambda store: store.folders("a/object/"),
    lambda store: store.delete("a/object"),
]


def at(endpoint: str, **more: str) -> ObjectStore:
    return open_object_store("s3://bucket/prefix", {**GIVEN, "endpoint": endpoint, "allow_http": "true", **more})


def raised(call: Callable[[ObjectStore], object], store: ObjectStore) -> OSError:
    with pytest.raises(OSError, match=r"s3://bucket/prefix/a/object") as error:
        call(store)
    return error.value


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever this machine is allowed to reach."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OBJECT_SMALL_PUT_S_MAX", 0.3)
    monkeypatch.setattr(limits, "OBJECT_SILENT_S_MAX", 0.3)
    monkeypatch.setattr(limits, "OBJECT_RETRIES_MAX", 1)


# --- URLs -------------------------------------------------------------------------------------------------------


def test_a_folder_is_made_and_only_ours(tmp_path: Path) -> None:
    for url in (str(tmp_path / "one" / "two"), f"file://{tmp_path}/three/four"):
        store = open_object_store(url)
        store.put("a/object", [b"x"])
        assert isinstance(store, FolderStore)
        path = Path(store.root)
        assert path.parent.parent == tmp_path
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path, path / "a", path / "a/object")]
        assert modes == [0o700, 0o700, 0o700, 0o600]


def test_a_relative_path_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_object_store("objects")
    monkeypatch.chdir("/")
    store.put("object", [b"x"])
    assert (tmp_path / "objects" / "object").read_bytes() == b"x"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_object_store(str(tmp_path / "file"))


def test_what_a_dead_put_left_is_removed_a_day_later(tmp_path: Path) -> None:
    store = open_object_store(str(tmp_path))
    store.put("object", [b"x"])
    (tmp_path / UNFINISHED / "old").touch()
    (tmp_path / UNFINISHED / "new").touch()
    day_before = time.time() - limits.OBJECT_UNFINISHED_S_MAX - 60
    os.utime(tmp_path / UNFINISHED / "old", (day_before, day_before))

    open_object_store(str(tmp_path))

    assert os.listdir(tmp_path / UNFINISHED) == ["new"]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "names no folder"),
        ("file://", "names no folder"),
        ("file://relative", "names no folder"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("ftp://host/x", "ftp:// is no object store"),
        ("https://host/x", "https:// is no object store"),
        ("s3://bucket/a//b", "is empty or begins with a dot"),
        ("az://container", "Account must be specified"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        open_object_store(url)


@pytest.mark.parametrize("url", ["s3://user:pass-word@bucket/x", "s3://bucket/x?secret=pass-word"])
def test_a_url_with_credentials_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="do not belong into a URL") as refused:
        open_object_store(url)
    assert "pass-word" not in str(refused.value)


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'no_option' is not valid"):
        open_object_store("s3://bucket", {**GIVEN, "no_option": "x"})
    with pytest.raises(ValueError, match="a folder takes no options: region"):
        open_object_store(str(tmp_path), {"region": "x"})


def test_what_is_shown_of_a_store_is_its_url() -> None:
    assert repr(at("http://127.0.0.1:1")) == "<BucketStore s3://bucket/prefix>"
    assert repr(open_object_store("gs://bucket/")) == "<BucketStore gs://bucket>"
    azure = open_object_store("az://container/a/b/", {"account_name": "a", "account_key": "a2V5"})
    assert repr(azure) == "<BucketStore az://container/a/b>"


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_a_dead_endpoint_fails_soon_and_says_so(call: Callable[[ObjectStore], object]) -> None:
    began = time.monotonic()
    error = raised(call, at("http://127.0.0.1:1"))
    assert time.monotonic() - began < 10
    assert (error.errno, error.strerror) == (errno.EIO, "the store cannot be reached: Connection refused")


@pytest.mark.parametrize("call", CALLS)
def test_a_silent_endpoint_is_given_up(call: Callable[[ObjectStore], object], impatient: None) -> None:
    with answering(None) as server:
        error = raised(call, at(server.endpoint))
    assert isinstance(error, TimeoutError)
    assert error.strerror == "the store did not answer in time"


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_bucket_is_not_a_missing_object(call: Callable[[ObjectStore], object], s3_server: S3Server) -> None:
    bucket = s3_server.bucket("nobody-made-it")
    with pytest.raises(OSError, match=r"NoSuchBucket.* 's3://nobody-made-it/prefix/a/object") as error:
        call(open_object_store(f"{bucket.url}/prefix", bucket.options))
    assert error.value.errno == errno.EIO


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", ["403 Forbidden", "401 Unauthorized"])
def test_refused_permissions_are_a_permission_error(call: Callable[[ObjectStore], object], status: str) -> None:
    with answering(answer(status)) as server:
        error = raised(call, at(server.endpoint))
    assert isinstance(error, PermissionError)
    assert status[:3] in str(error)


def test_wrong_credentials_are_a_permission_error(tmp_path: Path) -> None:
    with run_s3_server(tmp_path) as server:
        bucket = server.make_bucket("bucket")
        store = open_object_store(f"{bucket.url}/prefix", {**bucket.options, **GIVEN})
        store.put("a/object", [b"x"])
        plain = {"Content-Type": "text/plain"}
        reset = urllib.request.Request(f"{server.endpoint}/moto-api/reset-auth", b"0", plain, method="POST")
        urllib.request.urlopen(reset, timeout=30).close()
        for call in CALLS:
            error = raised(call, store)
            assert isinstance(error, PermissionError)
            assert "very-secret" not in str(error)


def test_without_credentials_the_error_names_what_is_missing(s3_bucket: S3Bucket) -> None:
    with answering(answer("404 Not Found")) as server:
        options = {"endpoint": s3_bucket.endpoint, "allow_http": "true", "metadata_endpoint": server.endpoint}
        with pytest.raises(OSError, match="there are no credentials in the environment") as error:
            open_object_store(s3_bucket.url, options).get("object")
    assert error.value.errno == errno.EIO, "and not that there is no such object"


def test_http_must_be_allowed(s3_bucket: S3Bucket) -> None:
    options = {**s3_bucket.options, "allow_http": "false"}
    with pytest.raises(OSError, match="AWS_ALLOW_HTTP=true"):
        open_object_store(s3_bucket.url, options).get("object")


@pytest.mark.parametrize("reply", [answer("500 Oops"), answer("503 Slow Down"), b""])
def test_a_put_is_never_repeated(reply: bytes) -> None:
    """If the first one worked, the second would be told that the name is taken, by itself."""
    with answering(reply) as server:
        error = raised(CALLS[0], at(server.endpoint))
    assert error.errno == errno.EIO
    assert [request.partition(b" HTTP")[0] for request in server.requests] == [b"PUT /bucket/prefix/a/object"]
    assert b"if-none-match: *\r\n" in server.requests[0]


@pytest.mark.parametrize("call", CALLS[1:])
def test_everything_else_is_repeated(call: Callable[[ObjectStore], object]) -> None:
    with answering(answer("500 Oops")) as server:
        error = raised(call, at(server.endpoint))
    assert error.errno == errno.EIO
    assert "500" in str(error)
    assert len(server.requests) == 1 + limits.OBJECT_RETRIES_MAX


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_does_not_mean_that_the_name_is_taken(code: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>Try again.</Message></Error>"
    with answering(answer("409 Conflict", body)) as server:
        error = raised(CALLS[0], at(server.endpoint))
    assert (error.errno, error.strerror) == (errno.EIO, f"{code}: Try again.")


# --- secrets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_no_error_shows_a_secret(call: Callable[[ObjectStore], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-session")
    said = "very-secret and token-of-the-session, at https://u:p4ss@host/x?sig=signature"
    body = f"<Error><Code>Strange</Code><Message>{said}</Message></Error>"
    with answering(answer("400 Bad Request", body)) as server:
        endpoint = server.endpoint.replace("//", "//user:password-of-it@")
        error = raised(call, at(endpoint))
    shown = "".join(traceback.format_exception(error)) + repr(error)
    for secret in ("very-secret", "token-of-the-session", "p4ss", "signature", "password-of-it"):
        assert secret not in shown, secret
    if call is not CALLS[3]:  # HEAD
        assert "Strange: … and …, at https://host/x" in shown


def test_a_dead_endpoint_does_not_show_its_password() -> None:
    error = raised(CALLS[0], at("http://user:password-of-it@127.0.0.1:1"))
    assert "password-of-it" not in "".join(traceback.format_exception(error)) + repr(error)


def test_a_wrong_option_does_not_show_the_others() -> None:
    with pytest.raises(ValueError, match="boolean") as refused:
        open_object_store("s3://bucket", {**GIVEN, "virtual_hosted_style_request": "very-secret"})
    assert "very-secret" not in str(refused.value)


# --- credentials from around us ---------------------------------------------------------------------------------


def test_the_environment_is_enough(s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_bucket.env.items():
        monkeypatch.setenv(name, value)
    url = s3_bucket.folder()
    open_object_store(url).put("object", [b"x"])
    assert open_object_store(url, s3_bucket.options).get("object") == b"x"


PROFILE = "[special]\naws_access_key_id = key-of-the-profile\naws_secret_access_key = secret-of-the-profile\n"


def test_a_profile_is_used_where_there_are_no_closer_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(PROFILE)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "special")
    with answering(answer("403 Forbidden")) as server:
        for given in ({}, GIVEN):
            with pytest.raises(PermissionError):
                open_object_store("s3://bucket", {**given, "endpoint": server.endpoint, "allow_http": "true"}).get("x")
    assert b"Credential=key-of-the-profile/" in server.requests[0]
    assert b"Credential=id-of-the-key/" in server.requests[1]


def test_a_profile_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "special")
    with pytest.raises(ValueError, match="special"):
        open_object_store("s3://bucket")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ValueError, match=r"the profile special of ~/\.aws can be read with the package boto3 only"):
        open_object_store("s3://bucket")


# --- size -------------------------------------------------------------------------------------------------------


def test_more_objects_than_a_page_has(s3_bucket: S3Bucket) -> None:
    store = open_object_store(s3_bucket.folder(), s3_bucket.options)
    names = [f"a/{number:05}" for number in range(limits.OBJECTS_LISTED_MAX + 5)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: store.put(name, [b"x"]), names))

    assert [entry.name for entry in store.list("a/")] == names[:1000]
    assert [entry.name for entry in store.list("a/", names[999])] == names[1000:]
    assert [entry.name for entry in store.list("a/01", names[999])] == names[1000:]


def test_a_large_put_may_take_longer(monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    monkeypatch.setattr(limits, "OBJECT_PUT_S_MAX", 2)
    with answering(None) as server:
        store = at(server.endpoint)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            store.put("a/object", [bytes(limits.OBJECT_SMALL_BYTES + 1)])
    assert time.monotonic() - began >= 2


def test_other_threads_run_while_a_call_waits(impatient: None) -> None:
    with answering(None) as server:
        store = at(server.endpoint)
        assert isinstance(store, BucketStore)

        def put() -> None:
            with pytest.raises(TimeoutError):
                store.put("object", [b"x"])

        waiting = threading.Thread(target=put)
        waiting.start()
        turns = 0
        while waiting.is_alive():
            turns += 1
            time.sleep(0.001)
    assert turns > 10
