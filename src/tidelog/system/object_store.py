"""Object storage: `ports.ObjectStore` in a bucket through `obstore`, or in a folder.

    s3://bucket/prefix      Amazon S3, and what speaks its protocol (MinIO, R2, Ceph ...)
    gs://bucket/prefix      Google Cloud Storage
    az://container/prefix   Azure Blob Storage; the account is in AZURE_STORAGE_ACCOUNT_NAME
    /path  file:///path     a folder, see `folder_store`

Credentials come from where each cloud's tools look for them: variables AWS_*, GOOGLE_* and AZURE_*, the role of the
machine or container, GOOGLE_APPLICATION_CREDENTIALS, and profiles of ~/.aws if `boto3` is installed. They never come in
the URL, which everybody sees who may list processes. `AWS_ENDPOINT_URL` names another server than Amazon's, and
`AWS_ALLOW_HTTP=true` allows one without TLS. Options have the names of `obstore`'s configuration (`endpoint`, `region`,
`allow_http` ...) and go before the environment.

What holds here and is easy to break:

- A put is one conditional request (If-None-Match: *), never in parts, and never repeated. `obstore` would repeat it
  after a 5xx answer or a broken connection; if the first one had worked, the second would find the name taken, and
  a shipper would take itself for another. Everything else is repeated a few times.
- Every call ends, after `limits.OBJECT_…_S_MAX` at the latest. One limit for all puts was rejected: a manifest must
  fail within seconds, and a segment over a slow line takes minutes.
- Errors say nothing that is secret, see `object_errors`.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import importlib.util
import os
import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from tidelog import limits
from tidelog.ports import Chunk, ObjectEntry, ObjectStore
from tidelog.system.disk import SystemDisk
from tidelog.system.folder_store import UNFINISHED, FolderStore
from tidelog.system.object_errors import STORE_ERRORS, is_past_end, secrets_among, store_error, without_secrets
from tidelog.system.object_names import (
    check_object_folder,
    check_object_name,
    check_object_part,
    check_object_prefix,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.auth.boto3 import Boto3CredentialProvider

_CloudStore = S3Store | GCSStore | AzureStore


class _Cloud(NamedTuple):
    make: type[Any]
    variables: str
    """What the names of its environment variables begin with."""
    defaults: Mapping[str, str]
    lists_in_order: bool


_CLOUDS: Final[Mapping[str, _Cloud]] = {
    # Objects are deleted one by one, which all that speak S3 can do.
    "s3": _Cloud(S3Store, "AWS_", {"disable_bulk_delete": "true"}, True),
    "gs": _Cloud(GCSStore, "GOOGLE_", {}, True),
    # An account with folders lists them one by one, and a/b before a-b.
    "az": _Cloud(AzureStore, "AZURE_", {}, False),
}
_CONNECTION_OPTIONS: Final = (
    "allow_http",
    "allow_invalid_certificates",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "root_certificate",
)
"""Options that `obstore` takes apart from the others; it then ignores their variables, so they are read here."""


def open_object_store(url: str, options: Mapping[str, str] | None = None, *, is_new: bool = True) -> ObjectStore:
    """The object store at a URL. `is_new`: a folder that is missing is made; otherwise it is a `FileNotFoundError`.

    `ValueError` says what is wrong with the URL or the options. A bucket is not asked for anything: whether it is there
    shows at the first call.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        if options:
            raise ValueError(f"a folder takes no options: {', '.join(sorted(options))}")
        return _open_folder(rest if separator else url, url, is_new=is_new)
    if scheme not in _CLOUDS:
        known = ", ".join(f"{each}://" for each in _CLOUDS)
        raise ValueError(f"{scheme}:// is no object store: there are {known}, file:// and paths of folders")
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket or "?" in rest:
        raise ValueError(f"{scheme}://…: credentials and options do not belong into a URL, but into the environment")
    if not bucket:
        raise ValueError(f"{url} names no bucket")
    check_object_prefix(prefix.strip("/"))
    return _open_bucket(scheme, bucket, prefix.strip("/"), dict(options or {}))


# --- folders ----------------------------------------------------------------------------------------------------


def _open_folder(path: str, url: str, *, is_new: bool) -> FolderStore:
    if not path or (url != path and not path.startswith("/")):
        raise ValueError(f"{url!r} names no folder" + (": file:// is followed by a path from / on" if path else ""))
    disk = SystemDisk()
    root = posixpath.abspath(path)
    missing: list[str] = []
    if not is_new and not disk.exists(root):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", root)
    while not disk.exists(root):
        root, name = posixpath.split(root)
        missing.append(name)
    for name in reversed(missing):
        disk.make_folder(posixpath.join(root, name))
        disk.sync_folder(root)
        root = posixpath.join(root, name)
    disk.list(root)  # it is a folder, and may be read
    _remove_unfinished(root)
    return FolderStore(disk, root)


def _remove_unfinished(root: str) -> None:
    """Remove what puts left behind whose process died, but not what others are writing."""
    folder = f"{root}/{UNFINISHED}"
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if os.stat(f"{folder}/{name}").st_mtime < time.time() - limits.OBJECT_UNFINISHED_S_MAX:
                    os.unlink(f"{folder}/{name}")


# --- buckets ----------------------------------------------------------------------------------------------------


class BucketStore:
    """`ports.ObjectStore` in a bucket."""

    __slots__ = ("_large", "_lists_in_order", "_secrets", "_small", "_store", "url")

    def __init__(
        self,
        url: str,
        store: _CloudStore,
        small: _CloudStore,
        large: _CloudStore,
        *,
        lists_in_order: bool,
        secrets: Sequence[str],
    ) -> None:
        self.url: Final = url
        """Without a `/` at its end."""
        self._store: Final = store
        """For everything but puts."""
        self._small: Final = small
        """For puts of at most `limits.OBJECT_SMALL_BYTES` ..."""
        self._large: Final = large
        """... and of more."""
        self._lists_in_order: Final = lists_in_order
        """Otherwise all that begins with the prefix is read for a page of it."""
        self._secrets: Final = secrets

    def __repr__(self) -> str:
        return f"<BucketStore {self.url}>"

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        check_object_name(name)
        size = sum(memoryview(chunk).nbytes for chunk in chunks)
        store = self._small if size <= limits.OBJECT_SMALL_BYTES else self._large
        with self._errors(name):
            obstore.put(store, name, list(chunks), mode="create", use_multipart=False)

    def read(self, name: str, position: int, length: int) -> bytes:
        check_object_name(name)
        check_object_part(position, length)
        if not length:
            self.size(name)  # a request for nothing is none, but the object must be there
            return b""
        with self._errors(name):
            try:
                return bytes(obstore.get_range(self._store, name, start=position, length=length))
            except BaseError as error:
                if is_past_end(error):
                    return b""
                raise

    def get(self, name: str) -> bytes:
        check_object_name(name)
        with self._errors(name):
            return bytes(obstore.get(self._store, name).bytes())

    def size(self, name: str) -> int:
        check_object_name(name)
        with self._errors(name):
            try:
                return obstore.head(self._store, name)["size"]
            except FileNotFoundError:
                # The answer to HEAD has no words: another one says whether it is the object or the bucket.
                return len(obstore.get(self._store, name).bytes())

    def folders(self, prefix: str) -> list[str]:
        check_object_folder(prefix)
        with self._errors(prefix):
            found = obstore.list_with_delimiter(self._store, prefix.rstrip("/") or None)
            return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, name: str) -> None:
        check_object_name(name)
        with contextlib.suppress(FileNotFoundError), self._errors(name):
            obstore.delete(self._store, name)

    # --- parts --------------------------------------------------------------------------------------------------

    def _entries(self, prefix: str, after: str) -> Iterator[ObjectEntry]:
        """Objects whose names begin with a prefix and come after a name.

        `obstore` lists folders only. For the rest of a prefix it is told to begin behind a shorter name, which is not
        too far: the name that is just the prefix comes after it.
        """
        folder, _, rest = prefix.rpartition("/")
        start = max(after, prefix[:-1] if rest else "")
        pages: Iterable[Sequence[ObjectMeta]] = obstore.list(self._store, folder or None, offset=start or None)
        for page in pages:
            for found in page:
                name = found["path"]
                if name > after and name.startswith(prefix):
                    yield ObjectEntry(name, found["size"])
                elif self._lists_in_order and name > prefix and not name.startswith(prefix):
                    return

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except STORE_ERRORS as error:
            raise store_error(error, f"{self.url}/{name}", self._secrets) from None

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        check_object_prefix(prefix)
        if after:
            check_object_name(after)
        with self._errors(prefix):
            found = self._entries(prefix, after)
            if not self._lists_in_order:
                return heapq.nsmallest(limits.OBJECTS_LISTED_MAX, found)
            entries = []
            for entry in found:
                entries.append(entry)
                if len(entries) == limits.OBJECTS_LISTED_MAX:
                    break
            return entries


def _open_bucket(scheme: str, bucket: str, prefix: str, options: dict[str, str]) -> BucketStore:
    cloud = _CLOUDS[scheme]
    secrets = secrets_among({**os.environ, **options})
    connection = {}
    for name in _CONNECTION_OPTIONS:
        if value := options.pop(name, None) or os.environ.get(cloud.variables + name.upper()):
            connection[name] = value
    provider = _profile(options) if scheme == "s3" else None

    def store(seconds: float, *, silent_s: float | None = None, retries: int = 0) -> Any:
        given: dict[str, Any] = {} if provider is None else {"credential_provider": provider}
        patience = {} if silent_s is None else {"read_timeout": timedelta(seconds=silent_s)}
        return cloud.make(
            bucket,
            prefix=prefix or None,
            config={**cloud.defaults, **options},
            client_options={
                **connection,
                "connect_timeout": timedelta(seconds=limits.OBJECT_CONNECT_S_MAX),
                "timeout": timedelta(seconds=seconds),
                **patience,
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=limits.OBJECT_RETRY_S_MAX),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=2),
                    "base": 2,
                },
            },
            **given,
        )

    try:
        return BucketStore(
            f"{scheme}://{bucket}/{prefix}".rstrip("/"),
            store(limits.OBJECT_GET_S_MAX, silent_s=limits.OBJECT_SILENT_S_MAX, retries=limits.OBJECT_RETRIES_MAX),
            store(limits.OBJECT_SMALL_PUT_S_MAX),
            store(limits.OBJECT_PUT_S_MAX),
            lists_in_order=cloud.lists_in_order and not _is_express(options),
            secrets=secrets,
        )
    except (BaseError, ValueError, TypeError) as error:
        words = str(error).partition("\n")[0]
        raise ValueError(f"{scheme}://{bucket}: {without_secrets(words, secrets)}") from None


def _is_express(options: Mapping[str, str]) -> bool:
    """Whether this is S3 Express One Zone, which lists objects in any order."""
    return (options.get("s3_express") or os.environ.get("AWS_S3_EXPRESS", "")).lower() == "true"


def _profile(options: Mapping[str, str]) -> Boto3CredentialProvider | None:
    """Credentials of a profile in ~/.aws, if there are no closer ones; `obstore` itself does not read these files."""
    closer = ("ACCESS_KEY_ID", "WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_RELATIVE_URI", "SKIP_SIGNATURE")
    given = {name.upper().removeprefix("AWS_") for name in options}
    if any(name in given or f"AWS_{name}" in os.environ for name in (*closer, "CONTAINER_CREDENTIALS_FULL_URI")):
        return None
    chosen = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    paths = [os.path.expanduser(os.environ.get(name) or path) for name, path in files.items()]
    if not chosen and not any(map(os.path.exists, paths)):
        return None
    if importlib.util.find_spec("boto3") is None:
        if chosen:
            raise ValueError(f"the profile {chosen} of ~/.aws can be read with the package boto3 only: install it")
        return None
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except BotoCoreError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        return None  # the files have no credentials, such as those of a machine with a role
