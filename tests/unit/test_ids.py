"""Ids that are made here: as others know them, and in the order of their making."""

from __future__ import annotations

import uuid

from romancy.core.ids import new_id

NOW = 1_700_000_000_000_000


def test_a_new_id_is_a_uuid_of_version_7_that_tells_its_time() -> None:
    for n in range(200):
        found = uuid.UUID(new_id(NOW + n * 1000))
        assert (found.version, found.variant) == (7, uuid.RFC_4122)
        assert found.int >> 80 == NOW // 1000 + n


def test_later_ids_sort_after_earlier_ones_and_none_comes_twice() -> None:
    ids = [new_id(NOW + n * 1000) for n in range(200)]
    assert ids == sorted(ids)
    assert len({new_id(NOW) for _ in range(1000)}) == 1000
