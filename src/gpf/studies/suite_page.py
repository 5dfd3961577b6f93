"""The page of the suite: overview with ranks, tables by group of worlds, and which agents differ significantly."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpf.navigation.suite import WORLDS
from gpf.reports.pages import Numbers, join
from gpf.reports.statistics import interval_words, over_seeds, wilson
from gpf.reports.tables import MISSING, markdown_table, show_paired, summary
from gpf.reports.verdicts import Family, caution, corrected
from gpf.studies.suite_ranks import Interval, Scores, improvement, mean_ranks, reversals, scores_of

BASELINE = "cast-and-surge"
"""With which all agents are compared over all worlds."""
SPECIALIST, GENERALIST = "gpf", "generalist"
EASY = 0.8
"""The suite tells agents apart where the best classical agent finds the source less often."""
MOST_REVERSALS = 20

Records = Sequence[Mapping[str, Any]]


def page(numbers: Numbers, name: str) -> str:
    """The text of the page."""
    records = numbers["results"]
    scores = {measure: scores_of(records, measure) for measure in ("success", "spl")}
    ranks = {measure: mean_ranks(of) for measure, of in scores.items()}
    return corrected(lambda family: _page(numbers, name, scores, ranks, family))


def _page(
    numbers: Numbers,
    name: str,
    scores: Mapping[str, Scores],
    ranks: Mapping[str, Mapping[str, Interval]],
    family: Family,
) -> str:
    records: Records = numbers["results"]
    success = scores["success"]
    return join(
        [
            "# The suite",
            f"Version {numbers['version']}. {numbers.get('protocol', '')} How it works, and how to add an agent:"
            " `docs/suite.md`.".replace("  ", " "),
            _statistics(success),
            caution(_most_seeds(success)),
            "## All worlds",
            _overview(numbers, scores, ranks),
            _overview_words(scores),
            f"![performance profiles]({name}.png)",
            "Performance profiles: the share of an agent's (world, seed) runs that score above tau, with 95 % bands of"
            " a bootstrap that is stratified by world (Agarwal et al. 2021). Higher is better.",
            "## Significant differences",
            _hard_worlds(numbers["agents"], success),
            _reversals(success, family),
            _generalist(scores, family),
            family.sentence,
            *_groups("Success rate", success, records, _success_cell),
            *_groups("SPL", scores["spl"], records, _spl_cell),
            *_groups("Arrival time, s: median (5 % to 95 %)", success, records, _arrival_cell),
            _flies(success),
            f"Made by `{numbers['command']}`. All numbers: [{name}.json]({name}.json).",
        ]
    )


def _most_seeds(scores: Scores) -> int:
    return max(len(seeds) for worlds in scores.values() for seeds in worlds.values())


def _statistics(scores: Scores) -> str:
    """Describes the numbers of the tables."""
    counts = sorted({len(seeds) for worlds in scores.values() for seeds in worlds.values()})
    words = "; ".join(f"with {count} seed{'s' if count > 1 else ''}: {interval_words(count)}" for count in counts)
    single = " A success rate of a single seed has Wilson's interval over episodes." if counts[0] == 1 else ""
    return f"Last checkpoint of every run. Numbers of a world are, {words}.{single}"


def _overview(numbers: Numbers, scores: Mapping[str, Scores], ranks: Mapping[str, Mapping[str, Interval]]) -> str:
    """A row for each agent: how it does over all worlds, and what it costs."""
    header = [
        "agent", "description", "worlds", "seeds", "mean rank, success (95 %)", "mean rank, SPL (95 %)",
        f"P(more success than {BASELINE}) (95 %)", "parameters", "decision, ms", "training, s",
    ]  # fmt: skip
    rows = []
    for agent, about in numbers["agents"].items():
        own = [one for one in numbers["results"] if one["agent"] == agent]
        shared = scores["success"].get(BASELINE, {}).keys() & scores["success"][agent].keys()
        compared = agent != BASELINE and bool(shared)
        better = improvement(scores["success"], agent, BASELINE) if compared else None
        rows.append(
            [
                agent, about["about"], len({one["world"] for one in own}), len({one["seed"] for one in own}),
                *(_interval(ranks[measure].get(agent), ".1f") for measure in ("success", "spl")),
                _interval(better, ".2f"), f"{np.median([one['parameters'] for one in own]):,.0f}",
                f"{np.median([one['decision_ms'] for one in own]):.3g}",
                f"{np.median([one['seconds'] for one in own]):,.0f}",
            ]
        )  # fmt: skip
    order = {agent: rank[0] for agent, rank in ranks["success"].items()}
    return markdown_table(header, sorted(rows, key=lambda row: order.get(str(row[0]), np.inf)))


def _overview_words(scores: Mapping[str, Scores]) -> str:
    few = (
        " With fewer than ten seeds these bootstrap intervals are too narrow."
        if _most_seeds(scores["success"]) < 10
        else ""
    )
    return (
        "An agent's rank in a world is that of its mean over seeds (1 is best; ties share a rank). Ranks are"
        " means over worlds with intervals of the stratified bootstrap, for agents that were in every world."
        f" P(more success) is the probability that a run of the agent has a higher success rate than one of {BASELINE}"
        f" in the same world, counting ties half, as a mean over worlds.{few} Parameters, times of a decision (one"
        " episode, one core) and of training are medians over runs; times depend on the machine."
    )


def _interval(interval: Interval | None, form: str) -> str:
    if interval is None:
        return MISSING
    middle, low, high = (format(value, form) for value in interval)
    return middle if interval[1] == interval[2] else f"{middle} [{low}, {high}]"


def _hard_worlds(agents: Mapping[str, Mapping[str, str]], scores: Scores) -> str:
    """In which worlds the best classical agent does not do well, and who is best there."""
    rows = []
    worlds = list(dict.fromkeys(world for of in scores.values() for world in of))
    for world in worlds:
        found = {agent: over_seeds(list(of[world].values()))[0] for agent, of in scores.items() if world in of}
        rules = {agent: score for agent, score in found.items() if agents[agent]["kind"] == "classical"}
        best = max(found, key=lambda agent: found[agent])
        rule = max(rules, key=lambda agent: rules[agent]) if rules else None
        hard = rule is not None and rules[rule] < EASY
        classical = MISSING if rule is None else f"{rule}, {rules[rule]:.1%}"
        cells = [world, f"{best}, {found[best]:.1%}", classical]
        rows.append([f"**{cell}**" for cell in cells] if hard else cells)
    hard_names = [row[0].strip("*") for row in rows if row[0].startswith("**")]
    said = (
        f"In {len(hard_names)} of {len(rows)} worlds the best classical agent finds the source in less than {EASY:.0%}"
        f" of the episodes{': ' + ', '.join(hard_names) if hard_names else ''}."
    )
    return f"{said}\n\n{markdown_table(['world', 'best agent', 'best classical agent'], rows)}"


def _reversals(scores: Scores, family: Family) -> str:
    """Pairs of agents whose order differs between worlds."""
    found = reversals(scores, family)
    if not found:
        return "Ranks reverse significantly between worlds for no pair of agents."
    worlds = sorted({world for r in found for world in (*r.first_better, *r.second_better)}, key=list(WORLDS).index)
    rows = [
        [f"{r.first}, {r.second}", ", ".join(r.first_better), ", ".join(r.second_better)]
        for r in found[:MOST_REVERSALS]
    ]
    shown = f" The first {MOST_REVERSALS}:" if len(found) > MOST_REVERSALS else ""
    return (
        f"Ranks reverse significantly between worlds for {len(found)} pairs of agents: each has a higher success rate"
        f" than the other in at least one world. The worlds are {', '.join(worlds)}.{shown}\n\n"
        + markdown_table(["pair", "the first is better in", "the second is better in"], rows)
    )


def _generalist(scores: Mapping[str, Scores], family: Family) -> str:
    """One navigator for all worlds against one for each."""
    if not {SPECIALIST, GENERALIST} <= scores["success"].keys():
        return ""
    rows = []
    for world, theirs in scores["success"][SPECIALIST].items():
        ours = scores["success"][GENERALIST].get(world, {})
        seeds = [seed for seed in ours if seed in theirs]
        if not seeds:
            continue
        cells = []
        for measure, form, scale in (("success", ".2f", 100.0), ("spl", ".3f", 1.0)):
            general, special = (scores[measure][name][world] for name in (GENERALIST, SPECIALIST))
            d = family.compare([general[seed] for seed in seeds], [special[seed] for seed in seeds])
            text = show_paired(d, form, scale)
            cells.append(f"**{text}**" if family.shows(d) else text)
        rows.append([world, summary(list(ours.values()), ".1%"), summary(list(theirs.values()), ".1%"), *cells])
    header = ["world", "generalist", f"specialist ({SPECIALIST})", "difference, points (95 %)", "SPL (95 %)"]
    return (
        "One navigator trained in varied worlds, compared with one trained in each world: differences are means over"
        " shared seeds with Student's intervals; bold ones are significant after correction.\n\n"
        + markdown_table(header, rows)
    )


# Tables by group of worlds


def _groups(title: str, scores: Scores, records: Records, cell: Any) -> list[str]:
    """A heading, and a table for each group of worlds: a row for each agent, a column for each world."""
    there = {world for of in scores.values() for world in of}
    parts = [f"## {title}"]
    for group in dict.fromkeys(world.group for world in WORLDS.values()):
        worlds = [name for name, world in WORLDS.items() if world.group == group and name in there]
        if worlds:
            rows = [[agent, *(cell(agent, world, records) for world in worlds)] for agent in scores]
            parts.append(markdown_table([group, *worlds], rows))
    return parts


def _of(agent: str, world: str, records: Records) -> Records:
    return [one for one in records if one["agent"] == agent and one["world"] == world]


def _success_cell(agent: str, world: str, records: Records) -> str:
    own = _of(agent, world, records)
    if len(own) != 1:
        return summary([one["success"] for one in own], ".1%")
    value, episodes = own[0]["success"], own[0]["episodes"]
    low, high = wilson(round(value * episodes), episodes)
    return f"{value:.1%} [{low:.1%}, {high:.1%}]"


def _spl_cell(agent: str, world: str, records: Records) -> str:
    return summary([one["spl"] for one in _of(agent, world, records)], ".3f")


def _arrival_cell(agent: str, world: str, records: Records) -> str:
    times = [one["arrival"] for one in _of(agent, world, records) if one["arrival"] is not None]
    if not times:
        return MISSING
    low, _, middle, _, high = np.median(np.array(times), axis=0)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _flies(scores: Scores) -> str:
    """All seeds of the flies' assays, from the worst to the best."""
    worlds = [name for name, world in WORLDS.items() if world.flies and any(name in of for of in scores.values())]
    if not worlds:
        return ""
    rows = [
        [agent, *(_every_seed(of[world].values()) if world in of else MISSING for world in worlds)]
        for agent, of in scores.items()
    ]
    return (
        "## The flies' assays, all seeds\n\nSuccess rate over the starts in %: median, and every seed from the worst"
        f" to the best.\n\n{markdown_table(['agent', *worlds], rows)}"
    )


def _every_seed(values: Any) -> str:
    percent = sorted(100.0 * value for value in values)
    return f"{np.median(percent):.1f}: " + ", ".join(f"{value:.1f}" for value in percent)
