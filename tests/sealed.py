"""Runs tests with every app sealed: `make test-sealed`, or `ROMANCY_TEST_SEALED=1 pytest tests/engine/test_x.py`.

`ROMANCY_TEST_SEALED=outside`: and every value that can be is kept outside the database.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from romancy.codecs import Encrypted, Outside
from romancy.runtime import Runtime

KEYS = {"k2": b"2" * 32, "k1": b"1" * 32}
HOW = os.environ.get("ROMANCY_TEST_SEALED")

_BUILD = "names the build that can't follow it, without the keys that belong to it then"
_PLAIN = "is about an app without a codec"
NOT_SEALED = {
    "engine/test_attempt_marks.py::test_they_go_with_a_copy": "opens the copy itself, without a codec",
    "engine/test_bad_input.py::test_a_full_disk_pauses_the_work_and_loses_nothing": "uses the threads of the storage",
    "engine/test_builds.py::test_a_resume_clears_the_list": _BUILD,
    "engine/test_builds.py::test_a_worker_of_another_build_takes_it": _BUILD,
    "engine/test_builds.py::test_a_worker_that_dies_while_it_tries": _BUILD,
    "engine/test_builds.py::test_a_worker_without_the_workflow_leaves_it": _BUILD,
    "engine/test_builds.py::test_no_build_follows_it": _BUILD,
    "engine/test_builds.py::test_the_first_commit_clears_the_list_even_if_the_status_stays": _BUILD,
    "engine/test_builds.py::test_two_builds_side_by_side_each_with_what_the_other_cannot_follow": _BUILD,
    "engine/test_builds.py::test_two_workers_of_one_build_try_it_once": _BUILD,
    "engine/test_bulk.py::test_errors_by_their_type": "searches for the text of an error, which is sealed",
    "engine/test_sealed.py::test_the_same_without_a_codec_does_show_it": _PLAIN,
    "engine/test_sealed_keys.py::test_a_process_without_a_codec_is_shut_out": _PLAIN,
    "engine/test_sealed_keys.py::test_operators_see_and_cancel_without_the_codec": _PLAIN,
    "engine/test_sealed_keys.py::test_sealing_does_not_let_in_libraries_that_are_too_old": _PLAIN,
}
"""Tests that can't pass with a codec, and why."""

_ORDER = "sends events at the same time, which are stored in the order in which their values were written outside"
_WITHOUT = "opens the database later with a codec that can't read what is outside"
NOT_OUTSIDE = {
    **{
        f"engine/test_alike_waits.py::test_{name}": _ORDER
        for name in (
            "across_restarts",
            "events_after_the_waits_are_taken_in_order_each_once",
            "events_before_the_waits_are_taken_in_order_each_once",
            "events_of_one_batch_are_told_apart",
            "four_times_the_waits_cost_about_four_times_as_much",
            "some_before_and_some_after",
            "waits_that_are_alike_are_not_looked_through_for_every_event",
        )
    },
    "engine/test_capacity.py::test_a_waiting_workflow_takes_at_most_six_kilobytes": "has no files in memory",
    "engine/test_outside.py::test_a_codec_around_what_was_there_before": _WITHOUT,
    "engine/test_sealed_keys.py::test_emissions_without_the_key_keep_their_numbers_and_their_end": _WITHOUT,
    "engine/test_sealed_keys.py::test_what_was_stored_before_goes_on": _WITHOUT,
    "engine/test_transaction_reports.py::test_the_history_says_what_was_transactional_without_the_code": (
        "looks at a page, which does not read errors outside"
    ),
}
"""Tests that can't pass if every value is kept outside, and why."""


def seal_all() -> None:
    """Give every app a codec that has none."""
    if not HOW:
        return
    make = Runtime.__init__

    def sealed(self: Runtime, **given: Any) -> None:
        make(self, **given)
        codec = Encrypted(KEYS)
        self.codec = self.codec or (Outside("memory://sealed", over=0, codec=codec) if HOW == "outside" else codec)

    Runtime.__init__ = sealed


def leave_out(items: list[pytest.Item]) -> None:
    """Skip the tests that can't pass with a codec."""
    if not HOW:
        return
    for item in items:
        name = "/".join(item.path.parts[-2:]) + "::" + item.name.partition("[")[0]
        if why := NOT_SEALED.get(name) or (HOW == "outside" and NOT_OUTSIDE.get(name)):
            item.add_marker(pytest.mark.skip(reason=f"sealed: it {why}"))
