"""The headlines of the paper's experiments, each with a verdict that is computed from the records.

Thresholds of judgement are here and nowhere else. A run that ended before its budget is judged by what it reached, and
the verdict says how far it went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from adaquantfl.report.tables import Measure, amount, significant
from adaquantfl.runs.records import RunRecord, method_label
from evidence.studies import letter
from evidence.studies.letter import Trace
from evidence.studies.panels import PLACES, Panel, sent

Outcome = Literal["not reproduced", "partly reproduced", "reproduced", "open"]
OUTCOMES: tuple[Outcome, ...] = ("not reproduced", "partly reproduced", "reproduced", "open")  # as they are told

TARGET = 0.02  # the loss that the paper's headlines are about
FEWEST = "AdaQuantFL reaches a low loss with fewer bits than every fixed level"
SAMPLE = "on a sample of 10,000 pictures"
ELSEWHERE = {  # panels that end above the paper's loss: the figure that they are about, and the loss to compare at
    letter.FULL: ("figure 3 (a), CNN, on the whole data set", 0.25),
    letter.SLOW: ("figure 3 (c), CNN, sorted labels", 0.4),
    letter.RESNET: ("figure 2 (a), ResNet-18", 0.3),
    letter.RESNET_DECAY: ("figure 2 (b), ResNet-18, variable rate", 0.4),
    letter.RESNET_SORTED: ("figure 2 (c), ResNet-18, sorted labels", 1.5),
}
ACCURACIES = {  # the paper's test accuracies (appendix D): AdaQuantFL's, and that of 16 bits
    "cifar-resnet18-iid": (0.6912, 0.6952),
    "fmnist-cnn-iid": (0.9115, 0.9101),
}
CLEARLY = 3.0  # half of the paper's factor of 6 still counts as the same finding
CLOSE = 0.01  # accuracies that differ by at most a point count as the same
LOSSES = {"loss": "global loss", "round_loss": "round loss"}  # the paper does not say which one it plots


@dataclass(frozen=True)
class Verdict:
    """What the paper says and where, whether it is so here, and the figures that say so."""

    claim: str
    where: str
    outcome: Outcome
    here: str


def verdicts(panels: Sequence[Panel]) -> list[Verdict]:
    """All headlines, those that do not reproduce first."""
    by_name = {panel.name: panel for panel in panels}
    found = [
        _six_times_fewer_bits(by_name),
        _fewer_bits_in_most_cases(panels),
        _lowest_floor(by_name),
        *(_accuracy(by_name, name) for name in ACCURACIES),
        _variable_rate_resnet(by_name),
        _variable_rate_cnn(by_name),
    ]
    return sorted(found, key=lambda verdict: OUTCOMES.index(verdict.outcome))


def letter_verdicts(panels: Mapping[str, Mapping[str, Sequence[Trace]]]) -> list[Verdict]:
    """The headlines about the CNN, judged in the paper's own setting on the bundled sample. Panels by record folder."""
    iid, decay, by_label = (
        {method: list(traces) for method, traces in panels.get(f"fmnist-sample-cnn-{name}", {}).items()}
        for name in ("iid", "decay", "sorted")
    )
    most = fewest_bits(iid, f"figure 3 (a), CNN, {SAMPLE}", TARGET)
    better = letter.verdict({name: decay[name] for name in ("adaquant", "4bit") if name in decay}, TARGET)
    variable = Verdict(
        "with a variable rate AdaQuantFL cannot do better than 4 bits",
        f"figure 3 (b), CNN, {SAMPLE}",
        {"yes": "not reproduced", "no": "reproduced", "open": "open"}[better],  # type: ignore[arg-type]
        f"to loss {TARGET:g}, {_against(decay, TARGET)}.",
    )
    lowest = {method: min(one.lowest for one in traces) for method, traces in by_label.items() if traces}
    ours = lowest.pop("adaquant", None)
    enough = len(by_label.get("adaquant", ())) >= letter.ENOUGH_SEEDS
    fixed = {method: low for method, low in lowest.items() if method.endswith("bit")}
    ahead = ours is not None and all(ours < low for low in fixed.values())
    floor = Verdict(
        f"with sorted labels AdaQuantFL has the lowest error floor, {TARGET:g}; the other methods' are higher",
        f"figure 3 (c), CNN, {SAMPLE}",
        "open"
        if ours is None or not fixed or not enough or letter.unstable(by_label)
        else "reproduced"
        if ahead and ours <= TARGET
        else "partly reproduced"
        if ahead
        else "not reproduced",
        f"{_floors(by_label)}.",
    )
    return [most, variable, floor]


def fewest_bits(panel: Mapping[str, Sequence[Trace]], where: str, level: float) -> Verdict:
    """Whether AdaQuantFL needs the fewest bits to a loss."""
    runs = {method: list(traces) for method, traces in panel.items()}
    outcomes: dict[str, Outcome] = {"yes": "reproduced", "no": "not reproduced", "open": "open"}
    found = outcomes[letter.verdict(runs, level)]
    return Verdict(FEWEST, where, found, f"to loss {level:g}, {_against(runs, level)}.")


def _against(panel: Mapping[str, Sequence[Trace]], level: float) -> str:
    ours = letter.cells(panel.get("adaquant", ()), "paper_bits", [level])[level]
    texts = []
    for method in (name for name in panel if name.endswith("bit")):
        theirs = letter.cells(panel[method], "paper_bits", [level])[level]
        count = _seeds(theirs)
        if theirs.mean is None:
            texts.append(f"{letter.METHODS[method]} {theirs.missed} ({count})")
        elif ours.mean is None:
            texts.append(f"{letter.METHODS[method]} sent {theirs.mean:.0f} d ({count})")
        else:
            texts.append(f"{letter.METHODS[method]} {theirs.mean / ours.mean:.2f} times its bits ({count})")
    sent = ours.missed if ours.mean is None else f"sent {ours.mean:.0f} d bits per client"
    return "; ".join([f"AdaQuantFL {sent} ({_seeds(ours)})", *([", ".join(texts)] if texts else [])])


def _seeds(cell: letter.Cell) -> str:
    return f"{len(cell.values)} seed{'' if len(cell.values) == 1 else 's'}"


def _floors(panel: Mapping[str, Sequence[Trace]]) -> str:
    texts = []
    for method, traces in panel.items():
        failed = sum(bool(one.failure) for one in traces)
        end = f", {failed} of {len(traces)} diverged" if failed else ""
        texts.append(f"{letter.METHODS[method]} {significant(min(one.lowest for one in traces))}{end}")
    return f"lowest losses: {'; '.join(texts)}" if texts else "the runs that it takes have no record"


@dataclass(frozen=True)
class Race:
    """What AdaQuantFL and the cheapest fixed level sent to a panel's lowest common loss."""

    level: float
    ours: int
    best: str
    theirs: int

    @property
    def ratio(self) -> float:
        """Above 1 where AdaQuantFL sent less than every fixed level."""
        return self.theirs / self.ours


def race(panel: Panel, measure: Measure = "paper_bits") -> Race | None:
    """The race to the lowest common loss, if AdaQuantFL and a fixed level have records."""
    level, ours = panel.common_level(), panel.run("adaquant")
    if level is None or ours is None or not panel.fixed:
        return None
    theirs = {run.label: round(sent(run, level, measure)) for run in panel.fixed}
    best = min(theirs, key=lambda label: theirs[label])
    return Race(level, round(sent(ours, level, measure)), best, theirs[best])


def wire_ratio(panel: Panel) -> float | None:
    """How many times fewer bytes AdaQuantFL's frames took than its paper bits, over all clients."""
    run = panel.run("adaquant")
    if run is None or not run.history:
        return None
    last = run.history[-1]
    formula = last["paper_bits"] * run.config["clients"] / 8  # bits of one client -> bytes of all
    return float(formula / last["wire_bytes_up"])


def _six_times_fewer_bits(panels: Mapping[str, Panel]) -> Verdict:
    claim, where = f"AdaQuantFL reaches loss {TARGET:g} in 0.3 Gb, 2 bits take 1.8 Gb", "figure 2 (a), ResNet-18"
    panel = panels.get("cifar-resnet18-iid")
    ours, theirs = (panel.run("adaquant"), panel.run("2bit")) if panel else (None, None)
    if panel is None or ours is None or theirs is None:
        return _open(claim, where)
    pair = Panel(panel.name, (ours, theirs)).smoothed
    duels = {key: _duel(pair, key) for key in LOSSES}
    reached, ratio, _ = duels["loss"]
    outcome: Outcome = "partly reproduced" if ratio > 1 else "not reproduced"
    if reached and ratio >= CLEARLY:
        outcome = "reproduced"
    here = "; ".join(f"by the {LOSSES[key]}, {text}" for key, (_, _, text) in duels.items())
    return Verdict(claim, where, outcome, f"{here} ({panel.extent}).")


def _duel(pair: Panel, key: str) -> tuple[bool, float, str]:
    """Whether AdaQuantFL reached the target, its rival's bits over its own there or as low as both got, and a text."""
    ours, theirs = pair.runs
    reached = ours.bits_to_loss(TARGET, key) is not None
    level = TARGET if reached else pair.common_level(key)
    reaching = [level is not None and run.reached(level, key) is not None for run in pair.runs]
    text = "" if reached else f"AdaQuantFL did not reach {TARGET:g} (lowest {_lowest(ours, key)}); "
    if level is None or not reaching[0]:
        return reached, 0.0, f"{text}there is nothing to compare"
    mine = round(sent(ours, level, key=key))
    text += f"to {level:g} AdaQuantFL sent {amount(mine)} per client"
    if not reaching[1]:
        return reached, float("inf"), f"{text}, and {theirs.label} did not get there (lowest {_lowest(theirs, key)})"
    other = round(sent(theirs, level, key=key))
    return reached, other / mine, f"{text} and {theirs.label} {amount(other)}, {other / mine:.2f}x"


def _fewer_bits_in_most_cases(panels: Sequence[Panel]) -> Verdict:
    claim, where = "AdaQuantFL reaches an error floor using much fewer bits in most cases", "figures 2 and 3"
    races = [(panel, result) for panel in panels if (result := race(panel)) is not None]
    if not races:
        return _open(claim, where)
    won = sum(result.ratio > 1 for _, result in races)
    lost = len(races) - won
    outcome: Outcome = "open"  # as long as the panels without a record could turn it round
    if won > len(PLACES) / 2:
        outcome = "reproduced"
    elif lost >= len(PLACES) / 2:
        outcome = "partly reproduced" if won else "not reproduced"
    each = "; ".join(
        f"{panel.title}, {panel.extent}, {result.ratio:.2f}x ({result.best}; recorded: {_labels(panel.fixed)})"
        for panel, result in races
    )
    here = (
        f"cheaper than every recorded fixed level in {won} of {len(races)} panels that have records, of {len(PLACES)}. "
        f"The cheapest fixed level's bits over AdaQuantFL's, to the lowest loss that all reached: {each}."
    )
    return Verdict(claim, where, outcome, here)


def _lowest_floor(panels: Mapping[str, Panel]) -> Verdict:
    claim = f"with sorted labels AdaQuantFL has the lowest error floor, {TARGET:g}; the other methods' are higher"
    panel, where = panels.get("fmnist-cnn-noniid"), "figure 3 (c), CNN"
    if panel is None or panel.run("adaquant") is None or not panel.fixed:
        return _open(claim, where)
    panel = panel.same_rounds
    outcome: Outcome = "not reproduced"
    texts = []
    for key, name in LOSSES.items():
        floors = {run.method: floor for run in panel.smoothed.quantized if (floor := run.lowest(key)) is not None}
        ours = floors.pop("adaquant", float("inf"))
        rival = min(floors, key=lambda method: floors[method], default="none")
        theirs = floors.get(rival, float("inf"))
        if ours < theirs and outcome != "reproduced":
            outcome = "reproduced" if ours <= TARGET else "partly reproduced"
        texts.append(
            f"{name} {significant(ours)}, the lowest of the fixed levels {significant(theirs)} ({method_label(rival)})"
        )
    return Verdict(claim, where, outcome, f"{'; '.join(texts)} ({panel.extent}).")


def _accuracy(panels: Mapping[str, Panel], name: str) -> Verdict:
    paper, place = ACCURACIES[name], PLACES[name]
    panel = panels[name].same_rounds if name in panels else None
    claim = f"AdaQuantFL's test accuracy is {paper[0]:.2%}, that of 16 bits {paper[1]:.2%}"
    where = f"figure {place.accuracy_figure} ({place.letter}), {place.task.partition(' ')[0]}"
    here = [_best_accuracy(panel.run(method)) if panel else None for method in ("adaquant", "16bit")]
    if panel is None or here[0] is None or here[1] is None:
        return _open(claim, where)
    apart: Outcome = "open" if min(run.rounds for run in panel.runs) < panel.budget else "not reproduced"
    outcome: Outcome = "partly reproduced" if abs(here[0] - here[1]) <= CLOSE else apart  # short runs may yet meet
    if outcome == "partly reproduced" and abs(here[0] - paper[0]) <= CLOSE:
        outcome = "reproduced"
    return Verdict(claim, where, outcome, f"{here[0]:.2%} and {here[1]:.2%} at their best ({panel.extent}).")


def _variable_rate_resnet(panels: Mapping[str, Panel]) -> Verdict:
    claim, where = "with a variable rate AdaQuantFL does well", "figure 2 (b), ResNet-18"
    panel = panels.get("cifar-resnet18-iid-decay")
    result = race(panel) if panel else None
    if panel is None or result is None:
        return _open(claim, where)
    here = (
        f"to loss {result.level:g} AdaQuantFL sent {amount(result.ours)} per client, the cheapest fixed level "
        f"({result.best}) {amount(result.theirs)} ({panel.extent})."
    )
    return Verdict(claim, where, "reproduced" if result.ratio > 1 else "not reproduced", here)


def _variable_rate_cnn(panels: Mapping[str, Panel]) -> Verdict:
    claim, where = "with a variable rate AdaQuantFL cannot do better than 4 bits", "figure 3 (b), CNN"
    panel = panels.get("fmnist-cnn-iid-decay")
    ours, theirs = (panel.run("adaquant"), panel.run("4bit")) if panel else (None, None)
    level = panel.common_level() if panel else None
    if panel is None or level is None or ours is None or theirs is None:
        return _open(claim, where)
    bits = round(sent(ours, level)), round(sent(theirs, level))
    here = f"to loss {level:g} AdaQuantFL sent {amount(bits[0])} per client, 4 bits {amount(bits[1])} ({panel.extent})."
    return Verdict(claim, where, "reproduced" if bits[0] >= bits[1] else "not reproduced", here)


def _open(claim: str, where: str) -> Verdict:
    return Verdict(claim, where, "open", "the runs that it takes have no record.")


def _labels(runs: Sequence[RunRecord]) -> str:
    return ", ".join(run.label for run in runs)


def _best_accuracy(run: RunRecord | None) -> float | None:
    values = run.series("test_accuracy")[1] if run else None
    return float(values.max()) if values is not None and values.size else None


def _lowest(run: RunRecord, key: str) -> str:
    lowest = run.lowest(key)
    return "unknown" if lowest is None else significant(lowest)
