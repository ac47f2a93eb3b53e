"""Many waits with one limit: each ends in time, and cancelling means what it always means."""

from __future__ import annotations

import asyncio

import pytest

from romancy.http.time_limits import TimeLimit

SOON, LATE = TimeLimit(0.02), TimeLimit(60)


async def endless(limit: TimeLimit) -> None:
    with limit.wait():
        await asyncio.sleep(20)
        pytest.fail("it was not ended")


async def test_what_takes_too_long_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await endless(SOON)
    with pytest.raises(TimeoutError):  # the timer is set again
        await endless(SOON)
    assert "waiting=0" in repr(SOON)


async def test_every_wait_ends_also_those_that_begin_meanwhile() -> None:
    limit = TimeLimit(0.05)
    tasks = [asyncio.create_task(endless(limit))]
    for _ in range(5):
        await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(endless(limit)))
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in found] == [TimeoutError] * 6


async def test_no_wait_ends_before_its_time() -> None:
    limit, loop = TimeLimit(0.1), asyncio.get_running_loop()
    first = asyncio.create_task(endless(limit))
    await asyncio.sleep(0.05)
    begin = loop.time()
    with pytest.raises(TimeoutError):
        await endless(limit)
    assert loop.time() - begin >= 0.1 - 0.002, "although the timer was set for the one before"
    with pytest.raises(TimeoutError):
        await first


async def test_what_is_done_in_time_is_left_alone() -> None:
    limit = TimeLimit(0.02)
    with limit.wait():
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_cancelled_wait_is_cancelled_not_out_of_time() -> None:
    task = asyncio.create_task(endless(LATE))
    await asyncio.sleep(0)
    assert "waiting=1" in repr(LATE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "waiting=0" in repr(LATE)


async def test_if_both_happen_at_once_it_is_cancelled() -> None:
    limit = TimeLimit(0.0)
    task = asyncio.create_task(endless(limit))
    await asyncio.sleep(0)
    assert "waiting=1" in repr(limit)
    task.cancel()
    limit._check(asyncio.get_running_loop())  # its time is up before the task notices
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_code_itself_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), LATE.wait():
        raise ZeroDivisionError


def test_it_works_in_another_loop() -> None:
    limit = TimeLimit(0.02)

    async def quick() -> None:
        with limit.wait():
            pass

    asyncio.run(quick())  # its timer never fires
    with pytest.raises(TimeoutError):
        asyncio.run(endless(limit))
