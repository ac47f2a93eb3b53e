"""The quick way to read an event finds exactly what the careful one finds, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from romancy.errors import InvalidEvent
from romancy.http.cloudevents import members as parsing
from romancy.http.cloudevents.members import members, read_object

BLANK = st.sampled_from(["", " ", "\t", "\n ", "\r"])
NAME = st.sampled_from(["data", "id", "x", 'y"data', "data\\", "\\", 'data"', "d", "data "])
TEXT = st.one_of(NAME, st.text(max_size=5), st.sampled_from(['"data":', '\\"data":1', "é", "{", "}"]))
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXT),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(NAME, inside, max_size=3)),
    max_leaves=5,
)


@st.composite
def objects(draw: Any) -> str:
    """A JSON object, with blanks and escapes wherever they are allowed."""

    def dumped(value: Any) -> str:
        return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))

    def named(name: str) -> str:
        return '"d\\u0061ta"' if name == "data" and draw(st.integers(0, 4)) == 0 else dumped(name)

    parts: list[str] = []
    for name, value in draw(st.lists(st.tuples(NAME, VALUE), max_size=5)):
        blanks = [draw(BLANK) for _ in range(4)]
        parts.append(f"{blanks[0]}{named(name)}{blanks[1]}:{blanks[2]}{dumped(value)}{blanks[3]}")
    return "{" + (",".join(parts) if parts else draw(BLANK)) + "}"


@settings(max_examples=500, deadline=None)
@given(objects(), st.sampled_from(["", " ", "x", '{"data":1}']), st.sampled_from(["", " ", '[{"data": 2}, ', "\\"]))
@example('{"d\\u0061ta": 1, "x": {"data": 2}}', "", "")
@example('{"y\\"data": 1, "d\\u0061ta": 2}', "", "")
@example('{"data": {"data": 2}}', "", "")
@example('{"x": "data", "data" : 1 , "id": "2"}', "", "")
@example('{"data": 1, "data": 2}', "", "")
def test_it_is_what_its_members_are(text: str, after: str, before: str) -> None:
    whole, at = before + text + after, len(before)
    listed, end = members(whole, at)
    names = [member.name for member in listed]
    try:
        found, stop = read_object(whole, at)
    except InvalidEvent:  # a name twice inside a value
        pytest.fail("members accepted it")
    assert stop == end == at + len(text)
    assert (found.twice is not None) == (len(set(names)) < len(names))
    if found.twice is None:
        assert found.values == {member.name: member.value for member in listed if member.name != "data"}
        assert found.data == next((member for member in listed if member.name == "data"), None)


@pytest.mark.parametrize(
    "text", ['{"data": 1', '{"data": 01}', '{"id": "a" "b"}', '{"a": NaN}', '{"a": {"b": 1, "b": 1}}']
)
def test_what_is_wrong_is_explained_by_the_careful_way(text: str) -> None:
    with pytest.raises(InvalidEvent) as careful:
        members(text, 0)
    with pytest.raises(InvalidEvent) as found:
        read_object(text, 0)
    assert str(found.value) == str(careful.value)


@pytest.mark.parametrize(
    "text", ['{"id": "1", "data": {"a": [1.0, "\\n"]} }', '{"data":"x", "id": "1"}', '{"id": "1"}']
)
def test_usual_events_are_read_the_quick_way(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "members", None)
    found, end = read_object(text, 0)
    assert (found.values, end) == ({"id": "1"}, len(text))
