"""The workloads of `weft bench workflows`: rows, workflow, systems and goals of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from weft_engine.emulated.launch import served_name

from weft_bench.cli.parts import SHUFFLED, SPIDER, TATQA, WorkflowsOptions
from weft_bench.mapred import spider, workload
from weft_bench.mapred.least import BLOCK_TOKENS, Prompt, computed_once, tokens_of
from weft_bench.mapred.plays import (
    Play,
    Servers,
    Task,
    by_algorithm_1,
    langgraph,
    weft_run,
)

OURS: Final = "weft run"
IN_TURN: Final = "LangGraph, replicas in turn"
GATEWAY: Final = "LangGraph, Weft's gateway"
ALGORITHM_1: Final = "Algorithm 1"
SYSTEMS: Final[Mapping[str, Play]] = {
    IN_TURN: langgraph(direct=True),
    GATEWAY: langgraph(direct=False),
    ALGORITHM_1: by_algorithm_1,
    OURS: weft_run,
}
SECONDS: Final = "seconds"
COMPUTED: Final = "computed"
# Goals of this project by system and figure, as ratios of ours over the system's.
Goals = Mapping[str, Mapping[str, float]]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload.

    title: of its page. systems: that play it, ours last. goals: on emulated engines, and on real
    ones. read: the rows of a folder, a number of contexts, a seed, and whether they are shuffled.
    text: the workflow with its models, tokens of an answer, and connections. models: how many it
    needs. about: what the page says about rows and workflow. prompts: those of all calls without
    the answers in them, if they are known before.
    """

    title: str
    systems: tuple[str, ...]
    goals: Mapping[bool, Goals]
    read: Callable[[Path, int, int, bool], Rows]
    text: Callable[[Sequence[str], int, Sequence[str]], str]
    models: int
    about: Callable[[WorkflowsOptions], str]
    prompts: Callable[[Rows], Iterable[Prompt]] | None = None

    def rows(self, options: WorkflowsOptions, order: str, seed: int) -> Rows:
        """Return the rows. Raises OSError and ValueError."""
        return self.read(Path(options.data), options.contexts, seed, order == SHUFFLED)

    def databases(self, options: WorkflowsOptions, rows: Rows, folder: Path) -> dict[str, str]:
        """Create the databases of all rows in a folder. Returns files by connection. Raises OSError
        and ValueError.
        """
        names = list(dict.fromkeys(row["db"] for row in rows if "db" in row))
        return spider.create(Path(options.data), folder, names)

    def least(self, servers: Servers, rows: Rows) -> int:
        """Return the least prompt tokens that any order of the calls computes, 0 if unknown. Raises
        httpx.HTTPError.
        """
        if self.prompts is None:
            return 0
        engine, models = next(iter(servers.engines.items()))
        return computed_once(tokens_of(engine, models[0], self.prompts(rows)))

    def task(
        self,
        options: WorkflowsOptions,
        servers: Servers,
        rows: Rows,
        databases: Mapping[str, str],
    ) -> Task:
        """Return the task of these rows. Raises ValueError for models that are not served."""
        models = models_of(options, self.models, servers)
        text = self.text(models, options.tokens, list(databases))
        tokens = options.kv_blocks * BLOCK_TOKENS
        return Task(options.workload, text, models, options.tokens, rows, databases, tokens)


def models_of(options: WorkflowsOptions, count: int, servers: Servers) -> tuple[str, ...]:
    """Return the names of the models: the only one, or those of the presets in their order. Raises
    ValueError.
    """
    if count == 1:
        return servers.models[:1]
    names = [served_name(name.strip()) for name in options.preset.split(",")]
    found = tuple(dict.fromkeys(names))
    absent = sorted(set(found) - set(servers.models))
    if len(found) != count or absent:
        raise ValueError(
            f"{options.workload} needs presets of {count} models that the gateway serves; "
            f"--preset {options.preset} has {', '.join(found)}, "
            f"the gateway serves {', '.join(servers.models)}"
        )
    return found


def _about_pages(options: WorkflowsOptions) -> str:
    return (
        f"{options.contexts * workload.QUESTIONS} questions about {options.contexts} contexts by "
        f"{len(workload.EXPERTS)} experts and an editor"
    )


def _about_spider(options: WorkflowsOptions) -> str:
    return (
        f"{options.contexts * spider.QUESTIONS} questions to {options.contexts} databases: the "
        "first model names the tables, the second one writes a query, SQLite executes it, and the "
        "second model writes it again if it fails, at most three times. Emulated answers have no "
        "meaning, so the executed query is that of the data set, and in 20% of the rows first one "
        "with an unknown column (in 5% twice). The databases have the schemas of the data set and "
        f"synthetic rows. `{ALGORITHM_1}` is the runner of `{OURS}` with Helium's schedule: even "
        "slices of the rows on the replicas of each model, and the order of its nested sequences; "
        "static prefixes are not computed ahead"
    )


def _with(text: Callable[[str, int], str]) -> Callable[[Sequence[str], int, Sequence[str]], str]:
    return lambda models, tokens, _: text(models[0], tokens)


_REAL_GOALS: Final = {COMPUTED: 0.5, SECONDS: 0.75}
WORKLOADS: Final[Mapping[str, Workload]] = {
    TATQA: Workload(
        "Map-reduce over TAT-QA",
        (IN_TURN, GATEWAY, OURS),
        {True: {}, False: {IN_TURN: _REAL_GOALS, GATEWAY: _REAL_GOALS}},
        lambda data, count, seed, shuffled: workload.rows(data, count, seed, shuffled=shuffled),
        _with(workload.workflow),
        1,
        _about_pages,
        workload.known_prompts,
    ),
    SPIDER: Workload(
        "Text to SQL over Spider with two models",
        (IN_TURN, GATEWAY, ALGORITHM_1, OURS),
        {
            True: {
                IN_TURN: {SECONDS: 0.7},
                GATEWAY: {SECONDS: 0.7},
                ALGORITHM_1: {SECONDS: 0.85},
            }
        },
        lambda data, count, seed, shuffled: spider.rows(data, count, seed, shuffled=shuffled),
        lambda models, tokens, names: spider.workflow(models[0], models[1], tokens, names),
        2,
        _about_spider,
    ),
}
