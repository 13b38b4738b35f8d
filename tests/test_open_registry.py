"""The table that other packages add to: names and tags, entry points, and who is told what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.errors import QuantizeError
from adaquantfl.open_registry import Registry
from support.recipes import put

SOURCE = """
class Outside:
    name, tags = "outside", (130,)

THING = Outside()
"""


class Thing:
    def __init__(self, name: Any, *tags: int) -> None:
        self.name, self.tags = name, tags


OURS = Thing("ours", 0, 1)


def facts(item: Any) -> tuple[str, Iterable[int]]:
    if not hasattr(item, "tags"):
        raise QuantizeError(f"{item!r} is not a thing.")
    return item.name, item.tags


def made() -> Registry[Thing]:
    return Registry("thing", "adaquantfl.things", lambda: (OURS,), facts, QuantizeError)


def other(name: str, *tags: int) -> Thing:
    """A thing of a class that is elsewhere."""
    thing: Thing = type("Other", (Thing,), {"__module__": "elsewhere"})(name, *tags)
    return thing


Install = Callable[..., Registry[Thing]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install packages, each with a thing; return a table that has not been asked yet."""

    def install(*packages: str, source: str = SOURCE) -> Registry[Thing]:
        for package in packages:
            put(tmp_path, package, {"adaquantfl.things": {"outside": f"outside_{package}:THING"}})
            (tmp_path / f"outside_{package}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        return made()

    yield install
    for module in [name for name in sys.modules if name.startswith("outside_")]:
        del sys.modules[module]


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (other("ours", 201), "name 'ours' is taken: adaquantfl has it, and elsewhere.Other brings another"),
        (other("mine", 201), r"name 'mine' is taken: .*Thing has it, and elsewhere.Other brings another"),
        (other("new", 200), r"tag 200 is taken: .*Thing has it, and elsewhere.Other brings another"),
        (Thing("mine", 200, 202), "name 'mine' is taken"),  # of one class, but not equal
        (other("new", 15), "128 to 254"),
        (other("new", 255), "128 to 254"),
        (other("Two words", 201), "a-z"),
        (7, "not a thing"),
    ],
)
def test_what_cannot_be_registered_is_refused_and_changes_nothing(thing: Any, says: str) -> None:
    table, mine = made(), Thing("mine", 200)
    assert table.register(mine) is table.find(mine) is table.find("mine") is table.by_tag(200) is mine
    for _ in range(2):
        with pytest.raises(QuantizeError, match=says):
            table.find(thing)
    assert table.names() == ("ours", "mine")
    assert table.find("mine") is mine


def test_a_class_that_is_defined_again_takes_the_place_of_the_older_one() -> None:
    """As a notebook does whose cell is run again."""
    table, first, second = made(), other("mine", 130), other("mine", 131)
    table.register(first)
    table.register(second)
    assert (table.find("mine"), table.by_tag(131), table.by_tag(130)) == (second, second, None)
    equal = other("mine", 131)
    assert table.register(equal) is equal


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(QuantizeError, match=r"no thing named 'our'. Did you mean 'ours'"):
        made().find("our")


def test_an_installed_package_brings_its_thing(install: Install) -> None:
    table = install("one")
    assert table.by_tag(130) is table.find("outside")
    assert table.names() == ("ours", "outside")


@pytest.mark.parametrize("source", ["import no_such_module", "THINGS = 0", "THING = 7"])
def test_an_entry_point_that_brings_no_thing_is_named_to_who_asks_for_it(source: str, install: Install) -> None:
    table = install("one", source=source)
    assert table.names() == ("ours",)  # all others can be used
    with pytest.raises(QuantizeError, match="thing 'outside' of the package one cannot be used"):
        table.find("outside")
    assert "cannot be used" in table.broken("outside")


def test_two_packages_with_one_name_are_told_apart_each_time(install: Install) -> None:
    table = install("one", "two")
    for _ in range(2):
        with pytest.raises(QuantizeError, match=r"'outside' is taken: the package .* has it, and the package"):
            table.find("ours")


def test_the_table_is_loaded_once_whoever_asks_first(install: Install) -> None:
    table = install("one")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(table.find, ["outside", "ours"] * 20))
    assert {id(one) for one in found} == {id(table.find("outside")), id(OURS)}
