"""Exceptions of `raises=` come back as themselves wherever their class is defined by then, or not at all."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from romancy.core.failure import Failure, capture, rebuild
from romancy.errors import ActivityError, NonDeterminismError


def make(name: str, module: str, base: type[Exception] = Exception, qualname: str | None = None) -> type[Exception]:
    return type(name, (base,), {"__module__": module, "__qualname__": qualname or name})


def recorded(error: Exception, *raises: type[Exception]) -> Failure:
    return Failure.decode(capture(error, raises=raises).encode())


def as_old(failure: Failure) -> Failure:
    """As a version wrote it that kept nothing but the full name."""
    new = ("listed_name", "namesakes", "module", "opaque")
    return Failure.decode(json.dumps({k: v for k, v in json.loads(failure.encode()).items() if k not in new}).encode())


old_and_new = pytest.mark.parametrize("version", [lambda f: f, as_old], ids=["new", "old"])


@old_and_new
@pytest.mark.parametrize(("then", "now"), [("__main__", "shop"), ("shop", "__main__"), ("shop", "shop.errors")])
def test_a_class_that_moved_is_found_by_its_name(version: Any, then: str, now: str) -> None:
    failure = version(recorded(make("Declined", then)(51, "no money"), make("Other", then), make("Declined", then)))
    assert failure.listed is None, "an equal name is not the same class: not listed"
    before, after = make("Declined", then), make("Declined", now)
    failure = version(recorded(before(51, "no money"), make("Other", then), before))
    error = rebuild(failure, "charge", (after, make("Other", now)))
    assert type(error) is after
    assert error.args == (51, "no money")


@old_and_new
def test_a_class_that_moved_into_or_out_of_another_class(version: Any) -> None:
    inner, outer = make("Declined", "shop", qualname="Card.Declined"), make("Declined", "cards")
    assert type(rebuild(version(recorded(inner(), inner)), "charge", (outer,))) is outer
    assert type(rebuild(version(recorded(outer(), outer)), "charge", (inner,))) is inner


@old_and_new
def test_nested_namesakes_may_move_together(version: Any) -> None:
    then, now = ([make("Declined", m, qualname=f"{o}.Declined") for o in ("Card", "Bank")] for m in ("shop", "store"))
    for n in (0, 1):
        assert type(rebuild(version(recorded(then[n](), *then)), "charge", now)) is now[n]


@old_and_new
def test_namesakes_stay_apart(version: Any) -> None:
    card, bank = make("Declined", "card"), make("Declined", "bank")
    for one in (card, bank):
        for listed in ((card, bank), (bank, card)):
            assert type(rebuild(version(recorded(one(), card, bank)), "charge", listed)) is one


def test_of_namesakes_one_may_move() -> None:
    """`python shop.py` has a class of its own and one it imports; both are called the same."""
    main, bank, shop = make("Declined", "__main__"), make("Declined", "bank"), make("Declined", "shop")
    assert type(rebuild(recorded(main(), main, bank), "charge", (bank, shop))) is shop
    assert type(rebuild(recorded(bank(), main, bank), "charge", (shop, bank))) is bank
    assert type(rebuild(recorded(shop(), shop, bank), "charge", (main, bank))) is main


def test_if_both_namesakes_moved_nothing_is_guessed() -> None:
    card, bank = make("Declined", "card"), make("Declined", "bank")
    with pytest.raises(NonDeterminismError, match=r"any of new1\.Declined, new2\.Declined.*__module__ = 'card'"):
        rebuild(recorded(card(), card, bank), "charge", (make("Declined", "new1"), make("Declined", "new2")))
    mended = make("Declined", "card")
    assert type(rebuild(recorded(card(), card, bank), "charge", (mended, make("Declined", "new2")))) is mended


@pytest.mark.parametrize("qualname", ["Declined", "Bank.Declined"])
def test_one_that_is_gone_is_not_taken_for_its_namesake(qualname: str) -> None:
    card, bank = make("Declined", "card"), make("Declined", "bank", qualname=qualname)
    with pytest.raises(NonDeterminismError, match=r"'charge' raised Declined .*card\.Declined.*put it back"):
        rebuild(recorded(card(), card, bank), "charge", (bank,))


@old_and_new
@pytest.mark.parametrize("now", [(), (make("Renamed", "shop"), make("Other", "shop"))])
def test_one_that_is_no_longer_listed_is_never_another_error(version: Any, now: tuple[type[Exception], ...]) -> None:
    declined = make("Declined", "shop")
    with pytest.raises(NonDeterminismError, match=r"raises= no longer lists shop\.Declined"):
        rebuild(version(recorded(declined("no"), declined)), "charge", now)


# --- subclasses -------------------------------------------------------------------------------------------------------
@old_and_new
def test_subclasses_of_listed_classes_move_too(version: Any) -> None:
    base = make("Declined", "__main__")
    failure = version(recorded(make("Stolen", "__main__", base)(7), base))
    moved = make("Declined", "shop")
    stolen = make("Stolen", "shop", make("Between", "shop", moved))
    assert type(rebuild(failure, "charge", (moved,))) is stolen


def test_subclasses_of_one_name_stay_apart() -> None:
    base = make("Declined", "shop")
    card, bank = make("Stolen", "card", base), make("Stolen", "bank", base)
    assert type(rebuild(recorded(card(), base), "charge", (base,))) is card
    assert type(rebuild(recorded(bank(), base), "charge", (base,))) is bank
    with pytest.raises(NonDeterminismError, match="could be any of"):
        rebuild(as_old(recorded(bank(), base)), "charge", (base,))


def test_a_subclass_of_the_same_name_as_its_base() -> None:
    base = make("Declined", "errors")
    special = make("Declined", "shop", base)
    assert type(rebuild(recorded(special(), base), "charge", (base,))) is special
    assert type(rebuild(recorded(base(), base), "charge", (base,))) is base


def test_a_subclass_that_is_gone_is_not_taken_for_its_base() -> None:
    base = make("Declined", "shop")
    failure = recorded(make("Stolen", "shop", base)(7), base)
    today = make("Declined", "shop")
    with pytest.raises(NonDeterminismError, match=r"the subclass shop\.Stolen no longer exists"):
        rebuild(failure, "charge", (today,))
    assert type(rebuild(as_old(failure), "charge", (today,))) is today, "old histories do not say where it was"


@pytest.fixture
def lazily(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with a listed class, and one that only an activity imports."""
    (tmp_path / "lazy_base.py").write_text("class Declined(Exception): ...\n")
    (tmp_path / "lazy_more.py").write_text("import lazy_base\nclass Stolen(lazy_base.Declined): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("lazy_base")
    for name in ("lazy_base", "lazy_more"):
        sys.modules.pop(name, None)


def test_a_subclass_that_only_the_activity_imported_is_imported_again(lazily: ModuleType) -> None:
    base = make("Declined", "lazy_base")
    failure = recorded(make("Stolen", "lazy_more", base)(), base)
    assert "lazy_more" not in sys.modules
    error = rebuild(failure, "charge", (lazily.Declined,))
    assert type(error) is sys.modules["lazy_more"].Stolen


def test_the_nearest_listed_class_stands_for_an_exception() -> None:
    """So that a base may be struck from the list without touching what listed its own subclass."""
    base = make("Declined", "shop")
    stolen = make("Stolen", "shop", base)
    failure = recorded(stolen(), base, stolen)
    assert failure.listed == "shop.Stolen"
    assert type(rebuild(failure, "charge", (stolen,))) is stolen
    assert type(rebuild(failure, "charge", (base,))) is stolen, "listed by its base today"
    assert type(rebuild(recorded(stolen(), base), "charge", (stolen,))) is stolen, "listed itself today"


def test_a_twin_left_behind_by_slots_is_no_namesake() -> None:
    class Base(Exception): ...

    @dataclass(slots=True)
    class Full(Base):
        room: int = 3

    failure = recorded(Full(3), Base)
    assert isinstance(rebuild(failure, "book", (Base,)), Full)


# --- what can't be made again -----------------------------------------------------------------------------------------
def test_what_could_never_be_made_again_is_an_activity_error_then_and_now() -> None:
    failure = recorded(ExceptionGroup("both", [ValueError()]), ExceptionGroup)
    assert failure.opaque
    assert isinstance(rebuild(failure, "charge", (ExceptionGroup,)), ActivityError)


def test_what_can_no_longer_be_made_is_no_other_error() -> None:
    declined = make("Declined", "shop")

    class Strict(Exception):
        def __new__(cls, *args: object) -> "Strict":
            raise TypeError("not like this")

    Strict.__module__, Strict.__qualname__, Strict.__name__ = "shop", "Declined", "Declined"
    with pytest.raises(NonDeterminismError, match="can no longer be rebuilt"):
        rebuild(recorded(declined(1), declined), "charge", (Strict,))


def test_a_stranger_of_the_same_name_is_not_taken_for_it() -> None:
    """A listed base lists every subclass there is: only the recorded one is meant."""
    declined, root = make("Declined", "shop"), make("Root", "shop")
    stranger = make("Declined", "elsewhere", root)
    with pytest.raises(NonDeterminismError, match="no longer lists"):
        rebuild(recorded(declined(), declined), "charge", (root,))
    assert stranger.__base__ is root


# --- what can't tell its message any more -----------------------------------------------------------------------------
class Wrapping(Exception):
    """Like the errors of SQLAlchemy: what they say depends on an attribute that is not plain JSON."""

    def __init__(self, original: object) -> None:
        super().__init__("wrapped")
        self.original = original

    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")

    def __str__(self) -> str:
        return f"wrapped {self.original!r}"


@old_and_new
def test_one_without_its_attributes_says_what_it_said(version: Any) -> None:
    failure = version(recorded(Wrapping(object), Wrapping))
    for _ in range(2):
        error = rebuild(failure, "charge", (Wrapping,))
        assert isinstance(error, Wrapping)
        assert str(error) == "wrapped <class 'object'>"
        assert repr(error) == """Wrapping("wrapped <class 'object'>")"""
        assert error.args == ("wrapped",)
        assert not vars(error).keys() - {"__notes__"}
    ended = capture(rebuild(failure, "charge", (Wrapping,)))
    assert (ended.error_type, ended.message) == ("Wrapping", "wrapped <class 'object'>")


@old_and_new
def test_one_without_its_attributes_is_not_taken_for_a_subclass(version: Any) -> None:
    class Base(Exception): ...

    class Special(Base):
        def __str__(self) -> str:
            return f"special {self.original!r}"  # type: ignore[attr-defined]

    error = Special()
    error.original = object  # type: ignore[attr-defined]
    failure = version(recorded(error, Base))
    first, second = (rebuild(failure, "charge", (Base,)) for _ in range(2))
    assert type(first) is type(second)
    assert type(first).__mro__.count(Special) == 1
    assert len(Special.__subclasses__()) == 1
    whole = Special()
    whole.original = 3  # type: ignore[attr-defined]
    assert type(rebuild(version(recorded(whole, Base)), "charge", (Base,))) is Special


def test_one_with_its_attributes_is_exactly_its_class() -> None:
    wrapping = Wrapping([3])
    assert type(rebuild(recorded(wrapping, Wrapping), "charge", (Wrapping,))) is Wrapping


def test_one_with_a_broken_repr_shows_its_message() -> None:
    @dataclass(slots=True)
    class Full(Exception):
        room: int = 3

    assert repr(rebuild(recorded(Full(3), Full), "book", (Full,))).endswith("Full('3')")
