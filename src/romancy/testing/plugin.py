"""The pytest plugin: the fixture `romancy_env`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # anyio and others accept plain async fixtures
    async_fixture = pytest.fixture

from romancy.testing.environment import Environment, environment


@async_fixture
async def romancy_env() -> AsyncIterator[Environment]:
    """A new environment: `async def test_it(romancy_env): handle = await romancy_env.start(payment, ...)`."""
    async with environment() as env:
        yield env
