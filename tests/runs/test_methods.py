"""A method's short name says which keys it stands for."""

from __future__ import annotations

import pytest

from adaquantfl.cli import main
from adaquantfl.errors import ConfigError
from adaquantfl.rules.registry import methods
from adaquantfl.runs.methods import parse, parse_list


def test_a_name_is_a_rule_and_what_it_goes_with() -> None:
    assert parse("adaquant@sparse[rule.s0=3, scope=whole]").settings == {
        "rule": "adaquant",
        "codec": "sparse",
        "rule.s0": 3,
        "scope": "whole",
    }
    assert [one.name for one in parse_list("adaquant,dadaquant[undo=2,rule.s0=1],4bit,")] == [
        "adaquant",
        "dadaquant[undo=2,rule.s0=1]",
        "4bit",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("adaquantt", "adaquant"),
        ("adaquant[", "RULE"),
        ("adaquant[seed=1]", "seed"),
        ("adaquant@sparse[codec=fixed]", "codec"),
        ("adaquant[nonsense=1]", "nonsense"),
        ("+lattice", "RULE"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(name)


def test_no_two_methods_share_a_folder() -> None:
    names = ["adaquant", "adaquant[rule.s0=1]", "adaquant[rule.s0=2]", "adaquant@sparse", "adaquant[codec=sparse]"]
    assert len({parse(name).folder for name in names}) == len(names)


def test_all_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    for name in set(methods()) - {f"{bits}bit" for bits in range(2, 16)}:
        assert f"  {name} " in text
