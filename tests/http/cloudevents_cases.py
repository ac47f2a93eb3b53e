"""Tables of what is an event and what is not; the key of each case is its reason."""

from __future__ import annotations

import json
from typing import Any

from romancy.core.model import Event

Headers = list[tuple[bytes, bytes]]

STRUCTURED: Headers = [(b"content-type", b"application/cloudevents+json")]
BATCHED: Headers = [(b"content-type", b"application/cloudevents-batch+json")]
MINIMAL: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
ABSENT = object()


def event(**expected: Any) -> Event:
    """The minimal event, but for what is given."""
    return Event(**{"id": "1", "source": "/s", "type": "t", **expected})


def body(**members: Any) -> bytes:
    """A structured body: the minimal event, but for what is given."""
    return json.dumps({name: value for name, value in {**MINIMAL, **members}.items() if value is not ABSENT}).encode()


def raw(members: str) -> bytes:
    """A structured body with these members in these very words after the four of the minimal event."""
    return f"{json.dumps(MINIMAL)[:-1]}, {members}}}".encode()


def ce(**values: str | bytes | object) -> Headers:
    """Headers of binary mode: the minimal event, but for what is given; `content_type` is the Content-Type."""
    headers: Headers = []
    for name, value in {**MINIMAL, **values}.items():
        if isinstance(value, str | bytes):
            key = b"content-type" if name == "content_type" else b"ce-" + name.encode()
            headers.append((key, value.encode() if isinstance(value, str) else value))
    return headers


JSON = "application/json"
NOON = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z

STRUCTURED_ACCEPTED: dict[str, tuple[bytes, Event]] = {
    "four attributes are enough": (body(), event()),
    "null is absent": (
        body(time=None, subject=None, dataschema=None, datacontenttype=None, ext=None, data_base64=None),
        event(),
    ),
    "all core attributes": (
        body(subject="sub", time="2026-01-31T12:00:00Z", datacontenttype="text/plain", dataschema="https://x.io/s"),
        event(subject="sub", time=NOON, datacontenttype="text/plain", dataschema="https://x.io/s"),
    ),
    "a source may be a fragment": (body(source="#fragment"), event(source="#fragment")),
    "a source may be relative": (body(source="//authority/path?q=1"), event(source="//authority/path?q=1")),
    "a source may be a plain word": (body(source="payment-service"), event(source="payment-service")),
    "a source may be an IRI": (body(source="http://host/\u00a3"), event(source="http://host/\u00a3")),
    "a source is not normalised": (body(source="HTTP://X.io:80/%7e"), event(source="HTTP://X.io:80/%7e")),
    "a schema may be a urn": (body(dataschema="urn:x"), event(dataschema="urn:x")),
    "a schema may have a fragment": (body(dataschema="ftp://x.io/p#f"), event(dataschema="ftp://x.io/p#f")),
    "extensions of all types": (
        body(i=10, least=-(2**31), most=2**31 - 1, yes=True, no=False, s="text", b="TWE=", t="2023-03-31T15:12:00Z"),
        event(
            extensions={
                "i": 10,
                "least": -(2**31),
                "most": 2**31 - 1,
                "yes": True,
                "no": False,
                "s": "text",
                "b": "TWE=",
                "t": "2023-03-31T15:12:00Z",
            }
        ),
    ),
    "an extension may be empty": (body(ext=""), event(extensions={"ext": ""})),
    "a name may be long": (body(**{"x" * 100: "y"}), event(extensions={"x" * 100: "y"})),
    "a name may begin with a digit": (body(**{"1st": "y"}), event(extensions={"1st": "y"})),
    "a name may be escaped": (raw(r'"\u0065xt": 1'), event(extensions={"ext": 1})),
    "text may be any Unicode": (
        raw('"subject": "\u20ac\U0001f600 \\ud83d\\ude00 \\"\\\\\\/"'),
        event(subject='\u20ac\U0001f600 \U0001f600 "\\/'),
    ),
    "white space around everything": (
        b' \r\n\t{ "id" :\t"1" ,\n"source": "/s","type":"t" , "specversion" : "1.0" , "data" : [ 1 ] } \n',
        event(data=b"[ 1 ]", datacontenttype=JSON),
    ),
    "the target is the instance": (
        body(romancyinstanceid="order-1"),
        event(target="order-1", extensions={"romancyinstanceid": "order-1"}),
    ),
    "an event may expire": (
        body(expirytime="2026-01-31T13:00:00+01:00"),
        event(expires_at=NOON, extensions={"expirytime": "2026-01-31T13:00:00+01:00"}),
    ),
    "data without a type is JSON": (raw('"data": {"a": 1}'), event(data=b'{"a": 1}', datacontenttype=JSON)),
    "null data is data": (body(data=None), event(data=b"null", datacontenttype=JSON)),
    "null data that is not JSON is none": (
        body(data=None, datacontenttype="text/plain"),
        event(datacontenttype="text/plain"),
    ),
    "the content type is kept as sent": (
        raw('"datacontenttype": "Application/Vnd.X+JSON; v=1", "data": 1.0'),
        event(data=b"1.0", datacontenttype="Application/Vnd.X+JSON; v=1"),
    ),
    "a JSON string is not parsed again": (body(data='{"a": 1}'), event(data=rb'"{\"a\": 1}"', datacontenttype=JSON)),
    "text is its UTF-8": (
        body(data="Hello, \U0001f30e!\0", datacontenttype="text/plain"),
        event(data="Hello, \U0001f30e!\0".encode(), datacontenttype="text/plain"),
    ),
    "text may be empty": (body(data="", datacontenttype="text/plain"), event(data=b"", datacontenttype="text/plain")),
    "XML is text": (body(data="<a/>", datacontenttype="text/xml"), event(data=b"<a/>", datacontenttype="text/xml")),
    "base64 is bytes": (body(data_base64="AP8="), event(data=b"\x00\xff")),
    "base64 may be empty": (body(data_base64=""), event(data=b"")),
    "base64 may hold JSON": (
        body(data_base64="eyJhIjogMX0=", datacontenttype=JSON),
        event(data=b'{"a": 1}', datacontenttype=JSON),
    ),
}

KEPT = [
    "1.0",
    "1e400",
    "-0",
    "12345678901234567890",
    "9" * 5000,
    '{"b": 1, "a": 2}',
    r'"\u0000"',
    r'"\ud83d\ude00"',
    '"\u00e9"',
    "[ 1,\t2\n]",
]
"""JSON that Python would not write again as it was."""

STRUCTURED_REFUSED: dict[str, tuple[bytes, str]] = {
    "no specversion": (body(specversion=ABSENT), "lacks specversion"),
    "no id, and none is made up": (body(id=ABSENT), "lacks id"),
    "no source": (body(source=ABSENT), "lacks source"),
    "no type": (body(type=ABSENT), "lacks type"),
    "all that lacks is said": (b"{}", "lacks specversion, id, source, type; the sender must set them"),
    "null is absent, also where required": (body(id=None), "lacks id"),
    "an empty id": (body(id=""), "id must be a non-empty string, got ''"),
    "an empty type": (body(type=""), "type"),
    "an empty source": (body(source=""), "source"),
    "an empty specversion": (body(specversion=""), "specversion must be '1.0'"),
    "an old version": (
        body(specversion="0.3"),
        "specversion must be '1.0', the only supported version, got '0.3'",
    ),
    "an unknown version": (body(specversion="0.9"), "'0.9'"),
    "a version that is a number": (raw('"x": 1').replace(b'"1.0"', b"1.0"), "specversion"),
    "an empty subject": (body(subject=""), "subject"),
    "an empty schema": (body(dataschema=""), "dataschema"),
    "an empty content type": (body(datacontenttype=""), "datacontenttype"),
    "an empty time": (body(time=""), "time"),
    "a numeric id": (body(id=25), "id must be a non-empty string, got 25"),
    "an id that is true": (body(id=True), "id"),
    "an id that is an object": (body(id={"xyz": "abc"}), "id"),
    "a long id": (body(id="x" * 1025), "id must be at most 1024 characters, got 1025"),
    "a long source": (body(source="x" * 1025), "source"),
    "a long type": (body(type="x" * 1025), "type"),
    "a long subject": (body(subject="x" * 1025), "subject"),
    "a control character": (body(id="a\nb"), r"control characters, noncharacters or lone surrogates, got 'a\nb'"),
    "a NUL": (body(subject="\0"), "subject"),
    "DEL": (body(type="\x7f"), "type"),
    "a C1 control": (body(type="\x85"), "type"),
    "a noncharacter": (body(subject="\ufdd0"), "subject"),
    "a noncharacter at the end of the plane": (body(subject="\uffff"), "subject"),
    "a noncharacter of a high plane": (body(subject="\U0010fffe"), "subject"),
    "a high surrogate alone": (raw(r'"subject": "a\ud800"'), r"got 'a\ud800'"),
    "a low surrogate alone": (raw(r'"ext": "\udc00 "'), "extension 'ext'"),
    "a control character in an extension": (body(ext="\t"), "extension 'ext'"),
    "a name with capitals": (body(MyExtension="x"), "'MyExtension'"),
    "a name with a dot": (body(**{"my.ext": "x"}), "'my.ext'"),
    "a name with an underscore": (body(my_ext="x"), "'my_ext'"),
    "an empty name": (body(**{"": "x"}), "got ''"),
    "a name beyond ASCII": (raw('"\u00e9": "x"'), "got '\u00e9'"),
    "a name with a surrogate alone": (raw(r'"\ud800": 1'), r"got '\ud800'"),
    "a fraction": (body(ext=1.5), "extension 'ext' must be a string, an integer or a boolean, got 1.5"),
    "an integer written as a fraction": (raw('"ext": 1.0'), "extension 'ext'"),
    "an integer with an exponent": (raw('"ext": 1e2'), "extension 'ext'"),
    "more than 32 bits": (body(ext=2**31), "extension 'ext' must be a 32-bit integer"),
    "less than 32 bits": (body(ext=-(2**31) - 1), "32-bit"),
    "more than 64 bits": (body(ext=2**64), "extension 'ext'"),
    "digits without end": (raw(f'"ext": {"9" * 100_000}'), "extension 'ext'"),
    "an object as an attribute": (body(ext={"a": 1}), "extension 'ext'"),
    "an array as an attribute": (body(ext=[1]), "extension 'ext'"),
    "a long value is shown short": (body(id=["x" * 10_000]), "..."),
    "a source with a space": (body(source="/a b"), "source must be a URI, which can't contain ' ', got '/a b'"),
    "a source in brackets": (body(source="<http://x.io>"), "source"),
    "a source that is a path of Windows": (body(source="C:\\x"), "source"),
    "a schema that is relative": (body(dataschema="/path"), "dataschema must be an absolute URI"),
    "a schema without a scheme": (body(dataschema="//x.io/s"), "dataschema"),
    "a schema with a space": (body(dataschema="http://x.io/a b"), "dataschema"),
    "a content type that is no media type": (body(datacontenttype="xyz"), "datacontenttype must be a media type"),
    "a content type and something else": (body(datacontenttype="text/plain, text/html"), "datacontenttype"),
    "a content type with a space": (body(datacontenttype="text / plain"), "datacontenttype"),
    "a time that is a number": (body(time=1769860800), "time must be an RFC 3339 time such as 2026-01-31T12:00:00Z"),
    "a target that is empty": (body(romancyinstanceid=""), "romancyinstanceid"),
    "a target that is a number": (body(romancyinstanceid=5), "romancyinstanceid"),
    "an expiry that is no time": (body(expirytime="tomorrow"), "expirytime must be an RFC 3339 time"),
    "an expiry that is a number": (body(expirytime=5), "expirytime"),
    "data twice": (body(data="text", data_base64="AP8="), "data and data_base64"),
    "null data and base64": (body(data=None, data_base64="AP8="), "data and data_base64"),
    "base64 with odd characters": (body(data_base64="***="), "data_base64 must be a base64 string"),
    "base64 without padding": (body(data_base64="AP8"), "data_base64"),
    "base64 with too much padding": (body(data_base64="TWFU="), "data_base64"),
    "base64 with its padding in front": (body(data_base64="==TQ"), "data_base64"),
    "base64 with a line break": (body(data_base64="AP8=\r\n\r\n"), "data_base64"),
    "base64 of the URL alphabet": (body(data_base64="-_-_"), "data_base64"),
    "base64 beyond ASCII": (body(data_base64="\u00e9AAA"), "data_base64"),
    "base64 that is a number": (body(data_base64=1234), "data_base64"),
    "base64 that is not the JSON it says": (body(data_base64="AP8=", datacontenttype=JSON), "the data is not UTF-8"),
    "data that should be text": (
        body(data={"a": 1}, datacontenttype="text/plain"),
        "data of type 'text/plain' must be a",
    ),
    "text with a surrogate alone": (raw(r'"datacontenttype": "text/plain", "data": "\ud800"'), "lone surrogate"),
    "data with a surrogate alone": (raw(r'"data": {"a": "\ud800"}'), "lone surrogate"),
    "data with NaN": (raw('"data": NaN'), "NaN"),
    "data with infinity inside": (raw('"data": [-Infinity]'), "-Infinity"),
    "data with a name twice": (raw('"data": {"a": 1, "a": 2}'), "the name 'a' twice"),
    "data too deep": (raw(f'"data": {"[" * 65}{"]" * 65}'), "nested deeper than 64 levels"),
    "data far too deep": (raw(f'"data": {"[" * 100_000}{"]" * 100_000}'), "nested too deeply"),
    "an attribute far too deep": (raw(f'"x": {"[" * 100_000}{"]" * 100_000}'), "nested too deeply"),
    "an attribute twice": (raw('"id": "2"'), "the event has 'id' twice"),
    "an attribute twice, once escaped": (raw(r'"\u0069d": "1"'), "the event has 'id' twice"),
    "data member twice": (raw('"data": 1, "data": 1'), "the event has 'data' twice"),
    "an empty body": (b"", "found nothing"),
    "a body of blanks": (b" \n", "found nothing"),
    "an array": (b"[]", "cloudevents-batch+json"),
    "a string": (b'"x"', "one JSON object"),
    "a body that ends too early": (body()[:-1], "expected a comma or }"),
    "a comma too many": (body()[:-1] + b",}", "a name in double quotes"),
    "a body that goes on": (body() + b"{}", "continues after its JSON: '{}'"),
    "a wrong bracket": (body()[:-1] + b"]", "expected a comma or }"),
    "a name without quotes": (b"{id: 1}", "a name in double quotes"),
    "a member without value": (b'{"id"}', "a name in double quotes"),
    "a value that is none": (raw('"data": nope'), "not JSON"),
    "a bad escape in a name": (raw(r'"\q": 1'), "not JSON"),
    "a raw line break in a text": (raw('"subject": "a\nb"'), "not JSON"),
    "white space JSON does not know": (body().replace(b" ", "\u00a0".encode()), "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + body(), "byte order mark"),
    "another encoding": (body().decode().encode("utf-16"), "not UTF-8"),
    "bytes that are not UTF-8": (raw('"subject": "?"').replace(b"?", b"\xff"), "not UTF-8"),
}

BINARY_ACCEPTED: dict[str, tuple[Headers, bytes, Event]] = {
    "four headers are enough": (ce(), b"", event()),
    "names in any case": ([(name.upper(), value) for name, value in ce()], b"", event()),
    "the content type is the data's": (
        ce(content_type=JSON),
        b' {"a": 1.0}\n',
        event(data=b' {"a": 1.0}\n', datacontenttype=JSON),
    ),
    "an empty body is no data": (ce(content_type=JSON), b"", event(datacontenttype=JSON)),
    "null is data": (ce(content_type=JSON), b"null", event(data=b"null", datacontenttype=JSON)),
    "no content type, no guess": (ce(), b"\x00\xff", event(data=b"\x00\xff")),
    "bytes stay bytes": (
        ce(content_type="image/png"),
        b"\x00\xff",
        event(data=b"\x00\xff", datacontenttype="image/png"),
    ),
    "another charset is the receiver's business": (
        ce(content_type="text/plain; charset=iso-8859-1"),
        b"\xe9",
        event(data=b"\xe9", datacontenttype="text/plain; charset=iso-8859-1"),
    ),
    "JSON in UTF-8 that says so": (
        ce(content_type='Application/JSON ; Charset="UTF-8"'),
        b"1",
        event(data=b"1", datacontenttype='Application/JSON ; Charset="UTF-8"'),
    ),
    "all attributes": (
        ce(subject="sub", time="2026-01-31T12:00:00Z", dataschema="urn:x", ext="10", yes="true", empty=""),
        b"",
        event(subject="sub", time=NOON, dataschema="urn:x", extensions={"ext": "10", "yes": "true", "empty": ""}),
    ),
    "the target is the instance": (
        ce(romancyinstanceid="order%201"),
        b"",
        event(target="order 1", extensions={"romancyinstanceid": "order 1"}),
    ),
    "an event may expire": (
        ce(expirytime="2026-01-31t12:00:00z"),
        b"",
        event(expires_at=NOON, extensions={"expirytime": "2026-01-31t12:00:00z"}),
    ),
    "headers of others do not matter": (
        [(b"host", b"x"), (b"cert", b"\xff"), (b"ce_id", b"7"), *ce(), (b"x-ce-id", b"9")],
        b"",
        event(),
    ),
}

BINARY_REFUSED: dict[str, tuple[Headers, bytes, str]] = {
    "no id, and none is made up": (ce(id=ABSENT), b"", "lacks id"),
    "no specversion, and none is made up": (ce(specversion=ABSENT), b"", "lacks specversion"),
    "an old version": (ce(specversion="0.3"), b"", "specversion must be '1.0'"),
    "an empty id": (ce(id=""), b"", "id must be a non-empty string"),
    "an empty subject": (ce(subject="  "), b"", "subject"),
    "a header twice": ([*ce(), (b"Ce-Id", b"1")], b"", "'ce-id' is repeated"),
    "a content type twice": ([*ce(content_type=JSON), (b"Content-Type", b"text/plain")], b"", "Content-Type header"),
    "the content type as an attribute": (ce(datacontenttype=JSON), b"", "ce-datacontenttype must not be sent"),
    "a name that is reserved": (ce(data="x"), b"", "'data'"),
    "a name with an underscore": (ce(data_base64="x"), b"", "'data_base64'"),
    "a name with a hyphen": ([*ce(), (b"ce-my-ext", b"x")], b"", "'my-ext'"),
    "an empty name": ([*ce(), (b"ce-", b"x")], b"", "got ''"),
    "a name beyond ASCII": ([*ce(), (b"ce-\xff", b"x")], b"", "got '\u00ff'"),
    "a control character, encoded": (ce(subject="a%0D%0Ab"), b"", "control characters"),
    "a control character, raw": (ce(ext=b"a\x01"), b"", "control characters"),
    "a source that is no URI once decoded": (ce(source="/a%20b"), b"", "%20 is sent as %2520"),
    "a content type that is no media type": (ce(content_type="xyz"), b"", "datacontenttype must be a media type"),
    "a bad time": (ce(time="now"), b"", "time"),
    "not the JSON it says": (ce(content_type=JSON), b"{a}", "the data is not JSON"),
    "not the JSON it says, by suffix and case": (ce(content_type="X/Y+JSON;a=b"), b"<", "the data is not JSON"),
    "JSON with NaN": (ce(content_type=JSON), b"NaN", "NaN"),
    "JSON too deep": (ce(content_type=JSON), b"[" * 65 + b"]" * 65, "deeper than 64"),
    "JSON far too deep": (ce(content_type=JSON), b"[" * 100_000, "deeper"),
    "JSON that is only blanks": (ce(content_type=JSON), b" ", "the data is not JSON"),
}

UNSUPPORTED: dict[str, tuple[Headers, bytes]] = {
    "nothing at all": ([], b""),
    "JSON that is no event": ([(b"content-type", b"application/json")], body()),
    "another format": ([(b"content-type", b"application/cloudevents+avro")], b""),
    "another format in spite of ce- headers": (ce(content_type="application/cloudevents+protobuf"), b""),
    "another format of batches": ([(b"content-type", b"application/cloudevents-batch+avro")], b"[]"),
    "something that only begins like it": ([(b"content-type", b"application/cloudeventsx")], body()),
    "an event in another charset": ([(b"content-type", b"application/cloudevents+json; charset=utf-16")], body()),
    "a batch in another charset": ([(b"content-type", b"application/cloudevents-batch+json;charset='x'")], b"[]"),
    "JSON data in another charset": (ce(content_type='application/json; charset="latin-1"'), b"1"),
}

# What a header says, and the text it stands for.
DECODED: dict[str, tuple[bytes, str]] = {
    "plain": (b"simple", "simple"),
    "the example of the specification": (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro \u20ac \U0001f600"),
    "lower case and mixed": (b"Euro%20%e2%82%ac%20%f0%9F%98%80", "Euro \u20ac \U0001f600"),
    "escapes nobody needed": (b"lenient decoding %30%31", "lenient decoding 01"),
    "percent": (b"percent%25encoded", "percent%encoded"),
    "quote": (b"quote%22encoded", 'quote"encoded'),
    "one round only": (b"%2541", "%41"),
    "plus is plus": (b"a+b", "a+b"),
    "quoted": (b'"  quoted  text  "', "  quoted  text  "),
    "quoted in part": (b'"  quoted  text  "unquoted', "  quoted  text  unquoted"),
    "quoted twice": (b'"a" "b"', "a b"),
    "escaped quote": (rb'"escaped quote\"end"', 'escaped quote"end'),
    "escaped backslash": (rb'"escaped backslash\\end"', r"escaped backslash\end"),
    "escape of anything": (rb'"\a\%41"', "aA"),
    "backslash outside quotes": (rb"non-escaping backslash\end", r"non-escaping backslash\end"),
    "quotes first, then percent": (b'"%22"', '"'),
    "white space around": (b" \t a b \t ", "a b"),
    "raw UTF-8": ("caf\u00e9 \u20ac".encode(), "caf\u00e9 \u20ac"),
    "raw Latin-1": (b"caf\xe9", "caf\u00e9"),
    "raw Latin-1 and escapes": (b"caf\xe9%20%E2%82%AC", "caf\u00e9 \u20ac"),
    "lone percent": (b"100%", "100%"),
    "lone percent and digit": (b"100%0", "100%0"),
    "percent and no hex": (b"%g0 %0g %0$", "%g0 %0g %0$"),
}
STRICTLY_REFUSED = {"raw UTF-8", "raw Latin-1", "raw Latin-1 and escapes", "lone percent", "lone percent and digit"} | {
    "percent and no hex"
}
NOT_DECODABLE: dict[str, bytes] = {
    "low surrogate": b"%ED%B0%80",
    "high surrogate": b"%ED%A0%80",
    "pair of surrogates": b"%ED%A0%80%ED%B0%80",
    "overlong": b"%C0%A0",
    "cut off": b"%E2",
    "cut off by a percent": b"%E2%",
    "cut off by a letter": b"%E2x",
    "continuation first": b"%82",
    "two beginnings": b"%E2%E2",
    "half raw, half escaped": b"\xe2%82%AC",
    "open quote": b'"unterminated quote',
    "open quote at the end": b'a"',
    "open escape": b'"unterminated escape \\',
    "escaped closing quote": b'"a\\"',
}

TIMES: dict[str, str] = {
    # text: the same in UTC, to the microsecond
    "2026-01-31T12:00:00Z": "2026-01-31T12:00:00+00:00",
    "2026-01-31t12:00:00z": "2026-01-31T12:00:00+00:00",
    "2026-01-31T12:00:00+00:00": "2026-01-31T12:00:00+00:00",
    "2026-01-31T12:00:00-00:00": "2026-01-31T12:00:00+00:00",
    "2000-02-29T01:23:45.678+01:30": "2000-02-28T23:53:45.678+00:00",
    "2000-02-29T01:23:45-01:30": "2000-02-29T02:53:45+00:00",
    "2026-01-31T12:00:00+23:59": "2026-01-30T12:01:00+00:00",
    "2026-01-31T12:00:00.1Z": "2026-01-31T12:00:00.100000+00:00",
    "2026-01-31T12:00:00.123456Z": "2026-01-31T12:00:00.123456+00:00",
    "2026-01-31T12:00:00.1234569Z": "2026-01-31T12:00:00.123456+00:00",
    "2026-01-31T12:00:00.000000000Z": "2026-01-31T12:00:00+00:00",
    "2026-01-31T12:00:00." + "9" * 100 + "Z": "2026-01-31T12:00:00.999999+00:00",
    "1969-12-31T23:59:59.9999999Z": "1969-12-31T23:59:59.999999+00:00",
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59.999999Z": "9999-12-31T23:59:59.999999+00:00",
    "1990-12-31T23:59:60Z": "1990-12-31T23:59:59.999999+00:00",
    "1990-12-31T15:59:60.5-08:00": "1990-12-31T23:59:59.999999+00:00",
    "1997-06-30T23:59:60Z": "1997-06-30T23:59:59.999999+00:00",
    "9999-12-31T23:59:60Z": "9999-12-31T23:59:59.999999+00:00",
}
NO_TIMES: dict[str, str] = {
    "empty": "",
    "garbage": "lunchtime",
    "no offset": "2026-01-31T12:00:00",
    "no seconds": "2026-01-31T12:00Z",
    "no time": "2026-01-31",
    "an offset of letters": "2026-01-31T12:00:00X",
    "an offset in letters": "2026-01-31T12:00:00+xx:00",
    "an offset of hours": "2026-01-31T12:00:00+05",
    "an offset without colon": "2026-01-31T12:00:00+0500",
    "an offset with seconds": "2026-01-31T12:00:00+01:30:30",
    "an offset of 24 hours": "2026-01-31T12:00:00+24:00",
    "an offset of 25 hours": "2026-01-31T12:00:00+25:00",
    "an offset of 60 minutes": "2026-01-31T12:00:00-00:60",
    "something after": "2026-01-31T12:00:00Z01",
    "a line break after": "2026-01-31T12:00:00Z\n",
    "a space in the middle": "2026-01-31 12:00:00Z",
    "a space in front": " 2026-01-31T12:00:00Z",
    "a fraction without digits": "2026-01-31T12:00:00.Z",
    "a fraction with a comma": "2026-01-31T12:00:00,5Z",
    "a fraction then letters": "2026-01-31T12:00:00.1234567XYZ",
    "no leap year": "2100-02-29T12:00:00Z",
    "day 0": "2026-01-00T12:00:00Z",
    "day 31 of April": "2026-04-31T12:00:00Z",
    "month 13": "2026-13-01T12:00:00Z",
    "hour 24": "2026-01-31T24:00:00Z",
    "minute 60": "2026-01-31T12:60:00Z",
    "second 61": "2026-12-31T23:59:61Z",
    "a leap second at noon": "2026-12-31T12:00:60Z",
    "a leap second within a month": "2026-12-30T23:59:60Z",
    "a leap second by local time": "2026-12-31T23:59:60+01:00",
    "year 0": "0000-01-01T00:00:00Z",
    "year 10000": "10000-01-01T00:00:00Z",
    "a short year": "100-01-01T00:00:00Z",
    "a short month": "2026-1-01T00:00:00Z",
    "a sign": "+2026-01-01T00:00:00Z",
    "before all years in UTC": "0001-01-01T00:00:00+00:01",
    "after all years in UTC": "9999-12-31T23:59:59-00:01",
    "a week": "2026-W01-1T12:00:00Z",
    "digits that are not ASCII": "\u0662\u0660\u0662\u0666-01-31T12:00:00Z",
}
