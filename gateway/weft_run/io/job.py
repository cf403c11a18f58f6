"""A run from files: checks everything before the first call, runs, and writes the output."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from weft_run.io import graphs
from weft_run.io.errors import JobError
from weft_run.io.journal import ENDINGS, Journal
from weft_run.io.prompt_cache import check_place
from weft_run.io.reach import no_connection, no_host
from weft_run.io.rows import Input, RowsError, check_output, partial_of, write_output
from weft_run.io.tools import Tools
from weft_run.language.graph import (
    Http,
    LangGraph,
    Llm,
    Python,
    Sql,
    Workflow,
    bodies,
)


@dataclass(frozen=True, slots=True)
class Job:
    """A run to do. output: the target, if a link was given. prompt_cache: a file with answers of
    earlier runs, None for none.
    """

    workflow: Workflow
    input: Path
    output: Path
    connections: Mapping[str, Path] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    prompt_cache: Path | None = None

    def __post_init__(self) -> None:
        # Runs through a link and through its target need one journal, and the link must stay.
        if os.path.islink(self.output):
            object.__setattr__(self, "output", Path(os.path.realpath(self.output)))

    @property
    def journal_path(self) -> Path:
        """The journal, beside the output."""
        return self.output.with_name(self.output.name + ".journal")

    @property
    def files(self) -> list[Path]:
        """All files that the run reads or writes, apart from the prompt cache and from code."""
        databases = (self.journal_path, *self.connections.values())
        parts = [one.with_name(one.name + ending) for one in databases for ending in ENDINGS]
        written = {Path(one.file) for one in self.workflow.operators if one.file}
        return [self.input, self.output, partial_of(self.output), *parts, *written]


class Opened:
    """A checked job with its journal. total: the number of its rows."""

    def __init__(self, job: Job, *, resume: bool, program: str = "") -> None:
        """Check the input, the output and the workflow. program: of the calls, "" for a new name.
        Raises JobError, RowsError and JournalError.
        """
        check_output(job.output, job.input)
        if job.prompt_cache is not None:
            check_place(job.prompt_cache, job.files)
        types = {name: str(kind) for name, kind in job.workflow.inputs.items()}
        self.job = job
        self._input = Input(job.input, types)
        found = self._scanned = self._input.scan()
        self.total = found.number
        about = {"workflow": job.workflow.signature(), "input": found.digest}
        program = program or f"run-{job.workflow.name}-{secrets.token_hex(8)}"
        self.journal = Journal(job.journal_path, about, program=program, resume=resume)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows that have not ended yet."""
        for number, row in self._input.read(0, self.total):
            if not self.journal.finished(number):
                yield number, row

    def write(self) -> None:
        """Write the output, and delete the journal. Raises RowsError if it cannot be written, or if
        the input has changed: then the rows may be of several files, and some may be missing.
        """
        self._input.check(self._scanned)
        try:
            write_output(self.job.output, self.journal.rows(), self.job.workflow.outputs)
        except OSError as error:
            raise RowsError(f"{self.job.output}: {error.strerror or error}") from None
        self.journal.close(delete=True)


def check_tools(workflow: Workflow, tools: Tools) -> None:
    """Load all functions, and find all connections and constant hosts. Raises JobError."""
    errors = []
    for one, body in bodies(workflow.operators):
        try:
            if isinstance(body, Python):
                tools.load(body.function)
            elif isinstance(body, LangGraph):
                graphs.load(body.graph)
        except ValueError as error:
            errors.append(f"{one.place}: {error}")
        what = ""
        if isinstance(body, Sql):
            what = no_connection(body.connection, tools.connections)
        elif isinstance(body, Http):
            what = no_host(body, tools.hosts)
        if what:
            errors.append(f"{one.place}: {what}")
    if errors:
        raise JobError("\n".join(dict.fromkeys(errors)))


def code_of(workflow: Workflow) -> dict[str, str]:
    """Return a digest of each file with functions or graphs of the workflow, by its path. They must
    be loaded: see `check_tools`.
    """
    places = [
        body.function if isinstance(body, Python) else body.graph
        for _, body in bodies(workflow.operators)
        if isinstance(body, Python | LangGraph)
    ]
    files = {getattr(sys.modules[one.partition(":")[0]], "__file__", None) for one in places}
    known = sorted(one for one in files if one)
    return {file: sha256(Path(file).read_bytes()).hexdigest() for file in known}


def makes_calls(workflow: Workflow) -> bool:
    """Whether a workflow has LLM operators, or graphs whose nodes may make calls."""
    return any(isinstance(body, Llm | LangGraph) for _, body in bodies(workflow.operators))


class ModelPlace(NamedTuple):
    """The place that names a model. operator: "" for the workflow's own. text: for messages."""

    operator: str
    line: int
    text: str


def models_of(workflow: Workflow) -> dict[str, ModelPlace]:
    """Return the models of the LLM operators, each with the first place that names it; "" with the
    first operator without a model.
    """
    found: dict[str, ModelPlace] = {}
    for one, body in bodies(workflow.operators):
        if isinstance(body, Llm) and (body.model or not workflow.model):
            found.setdefault(body.model, ModelPlace(one.name, one.line, one.place))
        elif isinstance(body, Llm):
            line = workflow.model_line
            text = f"{one.file}:{line}: model" if line else one.place
            found.setdefault(workflow.model, ModelPlace("", line, text))
    return found
