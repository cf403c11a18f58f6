"""The YAML format of workflows as pydantic models; docs/reference has its JSON schema.

The models check the shape. Names, types and cycles are checked on the graph (`check`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from weft_run.language.graph import InputType, OnError, Role, Unmet

MAX_ROUNDS: Final = 1000
MAX_RETRIES: Final = 10
MAX_OPERATORS: Final = 10_000
KINDS: Final = ("llm", "format", "python", "sql", "http", "branch", "loop")
_WRITES: Final = re.compile(
    r"\s*(insert|update|delete|merge|replace|create|drop|alter|truncate)\b", re.IGNORECASE
)
# Fields of a request that Weft sets.
_OWN: Final = ("messages", "model", "n", "stream", "stream_options")

NAME_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
Name = Annotated[
    str,
    Field(pattern=NAME_PATTERN, description="ASCII letters, digits and underscores"),
]
_Template = Annotated[str, Field(description="a Jinja2 template")]


def _or(key: str, kind: Any) -> BeforeValidator:
    """Accept a text as short form of a mapping with one key."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str) else value,
        json_schema_input_type=str | kind,
    )


class MessageSpec(BaseModel, extra="forbid"):
    """One message of a chat."""

    role: Role
    content: _Template


class LlmSpec(BaseModel, extra="forbid"):
    """One chat completion: `user` with an optional `system`, or `messages`, or a reply."""

    system: _Template | None = None
    user: _Template | None = None
    messages: list[MessageSpec] | None = Field(None, min_length=1)
    reply_to: Name | None = Field(
        None, description="an llm operator; its messages and its answer precede `user`"
    )
    model: str | None = Field(None, description="default: the model of the workflow")
    temperature: float = Field(
        0,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="0 is greedy: only such calls, and those with a seed, are merged",
    )
    max_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, description="sampled calls with a seed count as greedy")
    top_p: float | None = Field(None, gt=0, le=1)
    stop: str | list[str] | None = None
    response_format: dict[str, Any] | None = None
    parameters: dict[str, Any] = Field({}, description="other fields of the request")

    @model_validator(mode="after")
    def _has_a_prompt(self) -> LlmSpec:
        if self.messages is None and self.user is None:
            raise ValueError("needs 'user' or 'messages'")
        if self.messages is not None and (self.user is not None or self.system is not None):
            raise ValueError("has either 'messages', or 'system' and 'user'")
        if self.reply_to is not None and (self.messages is not None or self.system is not None):
            raise ValueError("'reply_to' takes 'user' only: the other operator has the rest")
        for name in self.parameters:
            if name in _OWN:
                raise ValueError(f"'parameters' cannot contain {name!r}: Weft sets it")
            if name in type(self).model_fields:
                raise ValueError(f"{name!r} belongs beside 'parameters'")
        for name, value in self.request().items():
            try:
                orjson.dumps(value)
            except TypeError as error:
                raise ValueError(f"{name!r} is not JSON: {error}") from None
        return self

    def request(self) -> Mapping[str, Any]:
        """Return the fields of the request, without model and messages."""
        names = ("temperature", "max_tokens", "seed", "top_p", "stop", "response_format")
        found = {name: getattr(self, name) for name in names}
        return {name: one for name, one in found.items() if one is not None} | self.parameters


class PythonSpec(BaseModel, extra="forbid"):
    """A call of a Python function."""

    function: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description="`module:name`", max_length=256
    )
    args: list[Any] | dict[str, Any] | None = Field(
        None,
        description="arguments, by position or by name; texts are templates, and a single "
        "`{{ expression }}` keeps its type. Default: the item with `for_each`, otherwise no "
        "argument",
    )


class SqlSpec(BaseModel, extra="forbid"):
    """A query. Its value is a list of rows."""

    query: _Template
    connection: str = Field("default", description="name of a connection of the runner")
    parameters: dict[Name, Any] = Field({}, description="values that the database binds")
    write: bool = Field(False, description="whether the statement changes the database")

    @model_validator(mode="after")
    def _writes_are_marked(self) -> SqlSpec:
        if not self.write and _WRITES.match(self.query):
            raise ValueError("the statement changes the database: set 'write: true'")
        return self


class HttpSpec(BaseModel, extra="forbid", populate_by_name=True):
    """A request. Its value is the JSON of the answer, or the text."""

    url: _Template
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, _Template] = {}
    body: Any = Field(None, alias="json", description="JSON; texts in it are templates")


class LoopSpec(BaseModel, extra="forbid"):
    """The end of a loop."""

    max: int = Field(ge=1, le=MAX_ROUNDS, description="rounds at most")
    until: _Template = Field(description="the loop ends after the round in which this holds")
    unmet: Unmet = Field(
        "keep", description="if it never holds: `keep` keeps the last round, `fail` is an error"
    )


class _Bodies(BaseModel, extra="forbid"):
    llm: LlmSpec | None = None
    format: _Template | None = None
    python: Annotated[PythonSpec, _or("function", PythonSpec)] | None = None
    sql: Annotated[SqlSpec, _or("query", SqlSpec)] | None = None
    http: Annotated[HttpSpec, _or("url", HttpSpec)] | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds of body that are set."""
        return [kind for kind in KINDS if getattr(self, kind, None) is not None]

    @model_validator(mode="after")
    def _has_one_kind(self) -> _Bodies:
        if len(self.kinds) != 1:
            allowed = ", ".join(kind for kind in KINDS if kind in type(self).model_fields)
            given = f"has {', '.join(self.kinds)}" if self.kinds else "has none"
            raise ValueError(f"needs exactly one of {allowed}; it {given}")
        return self


class CaseSpec(_Bodies):
    """A case of a branch. Without `when`, it always holds."""

    when: _Template | None = None


class OperatorSpec(_Bodies):
    """An operator: exactly one of llm, format, python, sql, http, branch and loop."""

    branch: list[CaseSpec] | None = Field(
        None, min_length=1, description="the first case whose `when` holds runs"
    )
    loop: LoopSpec | None = None
    body: dict[Name, OperatorSpec] | None = Field(
        None, min_length=1, description="the operators of a loop's rounds"
    )
    for_each: Name | None = Field(None, description="a list: the operator runs once per `item`")
    when: _Template | None = Field(None, description="runs only if this expression holds")
    on_error: OnError = Field(
        "fail", description="`value`: the value is {value, error}, and the row goes on"
    )
    idempotent: bool = Field(
        False, description="a tool that may be repeated: it is retried, merged and coalesced"
    )
    retries: int | None = Field(
        None,
        ge=0,
        le=MAX_RETRIES,
        description="default: 2 for llm, for reads and for idempotent tools",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> OperatorSpec:
        if (self.loop is None) != (self.body is None):
            raise ValueError("'loop' and 'body' belong together")
        tools = [self.python, self.sql, self.http, *(one.python for one in self.branch or ())]
        tools += [tool for one in self.branch or () for tool in (one.sql, one.http)]
        if self.idempotent and not any(tools):
            raise ValueError("'idempotent' is for python, sql and http")
        if self.retries and any(tools) and not (self.idempotent or self._reads):
            raise ValueError("a tool is retried only with 'idempotent: true'")
        return self

    @property
    def _reads(self) -> bool:
        return self.sql is not None and not self.sql.write


class WorkflowSpec(BaseModel, extra="forbid"):
    """A workflow: operators that run once per row of a table."""

    weft: Literal[1] = Field(description="version of the format")
    name: str = Field("workflow", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    model: str = Field("", max_length=256, description="default: the gateway's only model")
    inputs: dict[Name, InputType] = Field({}, description="the columns that are read, with types")
    ops: dict[Name, OperatorSpec] = Field(min_length=1, max_length=MAX_OPERATORS)
    outputs: dict[Name, Name] = Field(min_length=1, description="the operator of each column")
