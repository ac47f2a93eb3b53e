"""What every test may use; the fixtures of a folder live in its own conftest."""

import logging
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import direct_offers, later, sealed

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background with SIGINT ignored, and every process the tests start would inherit
    # that: commands that are to end with Ctrl-C would not.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine draws slowly. That says nothing about the code.
settings.register_profile("romancy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("romancy")

direct_offers.watch()
sealed.seal_all()

LONGEST_FIRST = """
postgres/test_takeovers crash/test_every_commit_point http/test_openapi crash/test_kills crash/test_sigkill
viewer/test_pages property/test_machine postgres/test_balancing postgres/test_interleavings unit/test_instance
viewer/test_looks cli/test_serving http/test_reach unit/test_determinism http/test_client_retrying
postgres/test_high_availability cli/test_demo postgres/test_long_outages viewer/test_commands engine/test_quarantine
""".split()
"""Files that take long, however few their tests: whoever begins with one at the end keeps all others waiting."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files are dealt out in this order (with --no-loadscope-reorder; xdist's own is by the number of tests)."""
    later.put_off(items)
    sealed.leave_out(items)
    if not hasattr(config, "workerinput"):
        return
    ranks = {f"tests/{name}.py": rank for rank, name in enumerate(LONGEST_FIRST)}
    counts = Counter(item.location[0] for item in items)
    items.sort(key=lambda item: (ranks.get(file := item.location[0], len(ranks)), -counts[file], file))


@pytest.fixture(autouse=True)
def no_event_overtakes_another() -> Iterator[None]:
    """An event that is offered as soon as it is accepted is the oldest that its wait can take."""
    yield
    wrong, direct_offers.wrong = direct_offers.wrong, []
    assert not wrong, wrong[0]


@pytest.fixture(autouse=True)
def log_stays_as_it_is() -> Iterator[None]:
    """A test that changes the logger must not decide what later ones find in the log."""
    logger = logging.getLogger("romancy")
    before = logger.level, logger.propagate, logger.disabled
    yield
    logger.setLevel(before[0])
    logger.propagate, logger.disabled = before[1:]
