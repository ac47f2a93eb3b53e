"""Where a request ends. A request must state this once and unambiguously.

A proxy or cache in front of this server has read the same bytes. If the two could disagree about the end of a request,
an attacker could hide a second request in the first ("request smuggling"). So an ambiguous request is refused and its
connection closed, since nothing that follows can be trusted.

`fault_of` checks a head, whichever server has read it. `Framing` checks bytes, for a parser that is too lenient.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from romancy.http.body import Head, read_head

_REQUEST = re.compile(rb"[!-~]+ [!-~]+ HTTP/([0-9]\.[0-9])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_BARE = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
"""CR or LF alone."""
_LONGEST_SIZE = 1024
"""Maximum bytes of a chunk's size with its extensions."""


def fault_of(version: str, head: Head) -> str | None:
    """What is wrong with a head, or None. `version` is "1.1" for HTTP/1.1. A repeated header has a comma."""
    host, length, encoding = map(head.get, (b"host", b"content-length", b"transfer-encoding"))
    if version not in ("1.0", "1.1", "2", "3"):
        return f"HTTP/{version[:10]} is not supported, only HTTP/1.1 and 1.0"
    if host is None and version == "1.1":
        return "the Host header is missing"
    if host is not None and b"," in host:
        return "more than one Host header"
    if length is not None and not (length.isdigit() and len(length) <= 19):
        return "Content-Length must be a single whole number"
    if encoding is None:
        return None
    if length is not None:
        return "both Content-Length and Transfer-Encoding are given, so the end of the request is ambiguous"
    if version == "1.0":
        return "HTTP/1.0 has no Transfer-Encoding"
    return None if encoding.lower() == b"chunked" else "the only supported Transfer-Encoding is a single chunked"


class Framing:
    """Follows the bytes of a connection from request to request, and stops at the first invalid ones."""

    def __init__(self, longest: int) -> None:
        """`longest` is the maximum size of a head, and of the trailers after the last chunk."""
        self.fault: str | None = None
        self._longest = longest
        self._held = bytearray()
        """An incomplete head or line."""
        self._left = 0
        """Bytes of the body or chunk still to come."""
        self._read: Callable[[bytes, int], int] = self._head

    def feed(self, data: bytes) -> int:
        """Return how many of the bytes are valid. If not all are, `fault` says what is wrong."""
        place = 0
        while place < len(data) and self.fault is None:
            place = self._read(data, place)
        return place

    # --- heads ------------------------------------------------------------------------------------------------------
    def _head(self, data: bytes, place: int) -> int:
        text, end = self._until(b"\r\n\r\n", data, place, self._longest)
        if text is None:
            return end
        first, *lines = text.split(b"\r\n")
        request = _REQUEST.fullmatch(first)
        if request is None:
            return self._stop("the first line is not an HTTP request line", place)
        fields = [_FIELD.fullmatch(line) for line in lines]
        if None in fields:
            return self._stop("a header is malformed (folded lines and control characters are not allowed)", place)
        head = read_head([(field[1].lower(), field[2]) for field in fields if field is not None])
        fault = fault_of(request[1].decode(), head)
        if fault is not None:
            return self._stop(fault, place)
        self._left = int(head.get(b"content-length") or 0)
        is_chunked = head.get(b"transfer-encoding") is not None
        self._read = self._size if is_chunked else self._body if self._left else self._head
        return end

    def _until(self, mark: bytes, data: bytes, place: int, longest: int) -> tuple[bytes | None, int]:
        """The text before a mark (None if incomplete or invalid), and how far the bytes are valid."""
        end = -1 if self._held else data.find(mark, place, place + longest + len(mark))
        if end >= 0 and _BARE.search(data, place, end) is None:
            return data[place:end], end + len(mark)
        before = len(self._held)
        self._held += data[place : place + longest + len(mark) - before]
        end = self._held.find(mark, max(0, before - len(mark) + 1))
        bare = _BARE.search(self._held, max(0, before - 1), end if end >= 0 else len(self._held))
        if bare is not None:
            return None, self._stop("a line ends in CR or LF alone", place)
        if end < 0:
            if len(self._held) >= longest + len(mark):
                return None, self._stop(f"it does not end within {longest:,} bytes", place)
            return None, len(data)
        text = bytes(self._held[:end])
        self._held.clear()
        return text, place + end + len(mark) - before

    def _stop(self, fault: str, place: int) -> int:
        self.fault = fault
        return place

    # --- bodies -----------------------------------------------------------------------------------------------------
    def _skip(self, data: bytes, place: int, following: Callable[[bytes, int], int]) -> int:
        taken = min(self._left, len(data) - place)
        self._left -= taken
        if not self._left:
            self._read = following
        return place + taken

    def _body(self, data: bytes, place: int) -> int:
        return self._skip(data, place, self._head)

    def _size(self, data: bytes, place: int) -> int:
        line, end = self._until(b"\r\n", data, place, _LONGEST_SIZE)
        if line is None:
            return end
        size = _SIZE.fullmatch(line)
        if size is None:
            return self._stop("the size of a chunk is malformed", place)
        self._left = int(size[1], 16)
        self._read = self._chunk if self._left else self._trailer
        return end

    def _chunk(self, data: bytes, place: int) -> int:
        return self._skip(data, place, self._end_of_chunk)

    def _end_of_chunk(self, data: bytes, place: int) -> int:
        line, end = self._until(b"\r\n", data, place, 1)
        if line:
            return self._stop("a chunk is longer than its size says", place)
        if line is not None:
            self._read = self._size
        return end

    def _trailer(self, data: bytes, place: int) -> int:
        """Trailers are ignored, but must be headers. The first empty line ends them."""
        line, end = self._until(b"\r\n", data, place, self._longest)
        if line is None:
            return end
        if line and _FIELD.fullmatch(line) is None:
            return self._stop("a trailer after the last chunk is not a header", place)
        if not line:
            self._read = self._head
        return end
