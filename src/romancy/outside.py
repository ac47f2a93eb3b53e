"""Large values outside the database: in a directory, or wherever fsspec can write.

    App(codec=Outside("blobs"))
    App(codec=Outside("s3://bucket/romancy", codec=Encrypted(keys)))

The file is written before the value that refers to it is stored, so a crash can leave a file that nobody needs, but
never a value without its file. A file's name has the day on which it was written, and a file that is written again gets
the name of that day. So a file with a day long past that nothing refers to can be removed: nothing will refer to it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from romancy.core.clock import SystemClock
from romancy.core.model import from_us
from romancy.core.payloads import PayloadCodec
from romancy.errors import CodecError

OUTSIDE = "outside"
OVER = 256 * 1024
"""Bytes above which a value is kept outside."""
HERE, ELSEWHERE = b"\0", b"\1"
"""How a value of `Outside` begins: whether it follows, or says where it is."""
KEPT_DAYS = 3
"""Days after which a file that nothing refers to is removed. It may have been written for a value that is not stored
yet: that takes a moment, or as long as the database is away."""
_REMEMBERED = 4096
"""How many files are remembered, so that none is written twice."""
_CACHED = 16 * 1024 * 1024
"""Bytes of values that are kept in memory because they were written or read lately."""
_LONGEST = 200
"""Characters of a folder's name; a longer one is a hash, and the file `_OWNER` has the name."""
_OWNER = "owner"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


class Outside:
    """Keeps values of more than `over` bytes in a directory or under an fsspec URL, and the others in the database.

    `codec` encodes the values, in the files, too: `Outside("s3://bucket/orders", codec=Encrypted(keys))`. A URL needs
    `romancy[blobs]`, and what fsspec needs for its protocol. `sweep=False`: never remove files that nothing refers to.
    """

    def __init__(
        self, url: str | os.PathLike[str], *, over: int = OVER, codec: PayloadCodec | None = None, sweep: bool = True
    ) -> None:
        if over < 0:
            raise ValueError(f"over must not be negative, got {over}")
        if isinstance(codec, Outside):
            raise TypeError("Outside can't keep values of another Outside")
        self.url = os.fspath(url)
        self.over, self.codec, self.sweep = over, codec, sweep
        if "://" not in self.url:
            self.url = os.path.abspath(self.url)
        self.files: Files = _Bucket(self.url) if "://" in self.url else _Directory(self.url)
        self._known: OrderedDict[tuple[str, bytes], Reference] = OrderedDict()
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Outside {self.url} over={self.over:,}{f' {self.codec!r}' if self.codec else ''}>"

    @property
    def name(self) -> str:
        return OUTSIDE

    @property
    def codecs(self) -> tuple[PayloadCodec, ...]:
        return () if self.codec is None else (self.codec, *getattr(self.codec, "codecs", ()))

    @property
    def strict(self) -> bool:
        return bool(getattr(self.codec, "strict", False))

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(getattr(self.codec, "key_names", ()))

    # --- values ----------------------------------------------------------------------------------------------------
    def encode(self, payload: bytes, place: str, /) -> bytes:
        """Encode a value that stays in the database."""
        return HERE + self._sealed(HERE + payload, place)

    def refer(self, reference: Reference, place: str) -> bytes:
        """Return what is stored in place of a value that is kept outside."""
        return ELSEWHERE + self._sealed(ELSEWHERE + reference.encode(), place)

    def decode(self, payload: bytes, place: str | None, /) -> bytes:
        """Return a value; it is read from its file if it is kept outside."""
        value = self._stored(payload, place)
        return value[1:] if value[:1] == HERE else self.read(Reference.decode(value[1:]))

    def reference(self, payload: bytes, place: str | None) -> Reference | None:
        """Return where a value is kept; None if it is kept in the database."""
        value = self._stored(payload, place)
        return None if value[:1] == HERE else Reference.decode(value[1:])

    def _stored(self, payload: bytes, place: str | None) -> bytes:
        value = self._opened(payload[1:], place)
        if value[:1] != payload[:1] or value[:1] not in (HERE, ELSEWHERE):
            raise CodecError("it is damaged, or was written by a newer version of Romancy")
        return value

    def _sealed(self, value: bytes, place: str) -> bytes:
        """Encode a value, with the name of the codec before it: another one may be used later."""
        if self.codec is None:
            return b"\0" + value
        name = self.codec.name.encode()
        return bytes((len(name),)) + name + self.codec.encode(value, place)

    def _opened(self, value: bytes, place: str | None) -> bytes:
        name, body = _named(value)
        if not name:
            if self.strict:
                raise CodecError("it is not encrypted, and only encrypted values are accepted")
            return body
        for codec in self.codecs:
            if codec.name == name and (codec is self.codec or not self.strict):
                return codec.decode(body, place)
        raise CodecError(f"it was written with the codec {name!r}; give it to Outside(codec=...)", missing=name)

    # --- files -----------------------------------------------------------------------------------------------------
    def known(self, payload: bytes, folder: str) -> Reference | None:
        """Return where a value was put a moment ago; None if it was not, or too long ago."""
        reference = self._known.get((folder, _digest(payload)))
        return reference if reference is not None and reference.day >= _day(1) else None

    def put(self, payload: bytes, owner: Owner) -> Reference:
        """Write a value into the folder of its owner. It waits for the file system or the network."""
        folder = owner.folder
        sealed = self._sealed(payload, f"blobs/{folder}")
        reference = Reference(f"{folder}/{_day(0)}-{_digest(sealed).hex()}", len(payload))
        try:
            if owner.is_hashed:
                self.files.write(f"{folder}/{_OWNER}", owner.encode())
            self.files.write(reference.path, sealed)
        except Exception as error:
            raise OSError(f"a value of {len(payload):,} bytes can't be written to {self.url}: {error}") from error
        with self._lock:
            self._known[folder, _digest(payload)] = reference
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._keep(reference.path, payload)
        return reference

    def read(self, reference: Reference) -> bytes:
        """Read a value. It waits for the file system or the network."""
        cached = self._cache.get(reference.path)
        if cached is not None:
            return cached
        where = f"{self.url.rstrip('/')}/{reference.path}"
        try:
            sealed = self.files.read(reference.path)
        except FileNotFoundError:
            raise CodecError(f"it is kept in {where}, and that file is missing") from None
        except Exception as error:
            raise OSError(f"a value that is kept in {where} can't be read: {error}") from error
        folder, _, name = reference.path.rpartition("/")
        if name.rpartition("-")[2] != _digest(sealed).hex():
            raise CodecError(f"it is kept in {where}, and that file was changed")
        payload = self._opened(sealed, f"blobs/{folder}")
        self._keep(reference.path, payload)
        return payload

    def _keep(self, path: str, payload: bytes) -> None:
        if len(payload) > _CACHED // 4:
            return
        with self._lock:
            if path not in self._cache:
                self._cache[path] = payload
                self._cached += len(payload)
            while self._cached > _CACHED:
                self._cached -= len(self._cache.popitem(last=False)[1])

    def forget(self, path: str) -> None:
        """Remove a file that nothing refers to."""
        with self._lock:
            self._cached -= len(self._cache.pop(path, b""))
        self.files.remove(path)


def outside_parts(payload: bytes) -> tuple[str, bytes]:
    """Return the name of the codec that is used for a value of `Outside`, and the value."""
    return _named(payload[1:])


def _named(value: bytes) -> tuple[str, bytes]:
    end = 1 + value[0] if value else 1
    return value[1:end].decode("utf-8", "replace"), value[end:]


class Reference:
    """Where a value is kept."""

    __slots__ = ("path", "size")

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size

    def __repr__(self) -> str:
        return f"<Reference {self.path} {self.size:,} bytes>"

    @property
    def day(self) -> str:
        return day_of(self.path)

    def encode(self) -> bytes:
        return json.dumps({"blob": self.path, "size": self.size}).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Reference:
        try:
            stored = json.loads(raw)
            return cls(str(stored["blob"]), int(stored["size"]))
        except (ValueError, KeyError, TypeError):
            raise CodecError("it is damaged, or was written by a newer version of Romancy") from None


class Owner:
    """Whom a value belongs to: an instance, or an event with its source. Its files lie in one folder."""

    def __init__(self, database: str, kind: str, *names: str) -> None:
        self._id = "\0".join(names)
        quoted = _quoted(self._id)
        self.is_hashed = len(quoted) > _LONGEST
        self.folder = f"{database}/{kind}/{f'~{_digest(self.encode()).hex()}' if self.is_hashed else quoted}"

    def encode(self) -> bytes:
        return self._id.encode("utf-8", "surrogatepass")


def owner_names(files: Files, folder: str) -> list[str] | None:
    """Return whose folder this is: the id of an instance, or the source and the id of an event. None: unknown."""
    quoted = folder.rpartition("/")[2]
    if not quoted.startswith("~"):
        return unquote_to_bytes(quoted).decode("utf-8", "surrogatepass").split("\0")
    try:
        return files.read(f"{folder}/{_OWNER}").decode("utf-8", "surrogatepass").split("\0")
    except FileNotFoundError:
        return None


def _quoted(id: str) -> str:
    """Return an id as the name of a folder, also where names are limited, or small and capital letters are the same."""
    plain = "".join(
        char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in id
    )
    return f"%2e{plain[1:]}" if plain.startswith(".") else plain


def old_files(files: Files, folder: str) -> list[str]:
    """Return the paths of files that were written so long ago that nothing can refer to them that does not already."""
    names = [name for name in files.names(folder) if name != _OWNER]
    return [f"{folder}/{name}" for name in names if day_of(name) < _day(KEPT_DAYS)]


def remove_folder(files: Files, folder: str) -> None:
    """Remove a folder in which nothing is left."""
    if set(files.names(folder)) <= {_OWNER}:
        files.remove_folder(folder, _OWNER)


def day_of(path: str) -> str:
    return path.rpartition("/")[2].partition("-")[0]


def _day(ago: int) -> str:
    return f"{_today() - timedelta(days=ago):%Y%m%d}"


def _today() -> datetime:
    return from_us(SystemClock().wall()).astimezone(UTC)


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=20).digest()


# --- where files are ----------------------------------------------------------------------------------------------
class Files(Protocol):
    """Files in folders. Paths have slashes, and are relative."""

    def read(self, path: str) -> bytes: ...
    def write(self, path: str, content: bytes) -> None: ...
    def remove(self, path: str) -> None: ...
    def names(self, folder: str) -> Iterable[str]: ...
    def remove_folder(self, folder: str, last: str) -> None: ...


class _Directory:
    """A directory. A file is there as a whole or not at all, also after the machine has lost its power."""

    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        target = self._root / path
        if target.exists() and target.stat().st_size == len(content):
            return
        self._make(target.parent)
        handle, made = tempfile.mkstemp(dir=target.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, target)
        except BaseException:
            os.unlink(made)
            raise
        _sync(target.parent)

    def _make(self, folder: Path) -> None:
        """Make a folder, and those above it, durably."""
        if not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync(folder.parent)

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files and folders. Files that are being written begin with a dot."""
        try:
            return sorted(name for name in os.listdir(self._root / folder) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def remove_folder(self, folder: str, last: str) -> None:
        self.remove(f"{folder}/{last}")
        try:
            (self._root / folder).rmdir()
        except OSError:  # a file has been written meanwhile, or another process was first
            return


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Bucket:
    """Whatever fsspec can write: S3, Google Cloud Storage, Azure, SFTP, ..."""

    def __init__(self, url: str) -> None:
        try:
            fsspec: Any = import_module("fsspec")
        except ModuleNotFoundError:
            raise CodecError("a URL needs a package; install it with: pip install 'romancy[blobs]'") from None
        try:
            self._files, root = fsspec.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise CodecError(f"{url!r} can't be used to keep values: {error}") from error
        self._root = str(root).rstrip("/")

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def read(self, path: str) -> bytes:
        return self._files.cat_file(self._path(path))

    def write(self, path: str, content: bytes) -> None:
        where = self._path(path)
        self._files.makedirs(where.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(where, content)

    def remove(self, path: str) -> None:
        try:
            self._files.rm_file(self._path(path))
        except FileNotFoundError:
            return  # another process was first

    def names(self, folder: str) -> list[str]:
        self._files.invalidate_cache()
        try:
            found: list[Any] = self._files.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def remove_folder(self, folder: str, last: str) -> None:
        self.remove(f"{folder}/{last}")
        try:
            self._files.rmdir(self._path(folder))
        except (OSError, NotImplementedError):  # most of them have no folders
            return
