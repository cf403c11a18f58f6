"""The bodies of the gateway's own answers, as the OpenAPI page describes them.

Instants are Unix seconds. A field that ends in `_s` is a duration in seconds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """Describes the error of a request."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="the wrong member or parameter")
    code: str = Field(description="the kind of error, for programs")


class Error(BaseModel):
    """An error in OpenAI's shape."""

    error: ErrorDetail


class OpenCall(BaseModel):
    """A call in flight."""

    call: str
    thread: str
    parent: str | None = Field(description="the thread that started this one")
    replica: str
    arrival: float
    waiting_s: float
    service_s: float


class SessionAttribute(BaseModel):
    """A hint that is in force for the session."""

    until: float


class Session(BaseModel):
    """A program. Figures that only an engine can report are null until one has reported."""

    id: str
    object: Literal["session", "session.deleted"]
    status: Literal["active", "idle", "finished"] = Field(
        description="active: calls are in flight; finished: only receipts of its calls are left"
    )
    known_by: str | None = Field(
        description="the name that assigned the latest call to this session; null if this gateway "
        "has no receipt of a call"
    )
    created_at: float
    service_s: float | None = Field(description="engine time of all finished calls")
    waiting_s: float | None = Field(description="time in the engines' queues")
    critical_path_s: float | None = Field(description="engine time of the longest chain of calls")
    calls: int
    calls_in_flight: int
    errors: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    preemptions: int | None
    replicas: list[str] = Field(
        description="the session's home, and the replicas of its open calls and of the last one"
    )
    threads: list[OpenCall] = Field(description="calls in flight")
    told: dict[str, SessionAttribute] = Field(description="hints in force, by name")
    slo: str | None = Field(description="SLO class")
    target: float | None = Field(
        description="Unix time by which the session, or its turn, should end; null before its "
        "first call"
    )
    last_call_arrival: float | None
    last_call_completion: float | None


class CreatedSession(Session):
    """A session, with the metadata of the request."""

    metadata: dict[str, Any] = Field({}, description="missing if the request has none")


class DeletedSession(Session):
    """The session's totals at its end."""

    deleted: bool


class SessionList(BaseModel):
    """One page of sessions."""

    object: Literal["list"]
    data: list[Session]
    first_id: str | None
    last_id: str | None = Field(description="pass it as `after` to get the next page")
    has_more: bool


class FinishedSession(BaseModel):
    """The session has ended."""

    session_id: str
    finished: bool


class Model(BaseModel, extra="allow"):
    """A model as its engine describes it. Engines add further members."""

    id: str


class ModelList(BaseModel):
    """The models of all replicas."""

    object: Literal["list"]
    data: list[Model]


class TableState(BaseModel):
    """The process table."""

    state: Literal["ok", "unavailable"]
    local: bool = Field(description="whether the store is away and the table runs in memory")


class StepCosts(BaseModel):
    """The costs of an engine's step, seconds, as fitted to its own steps."""

    step_s: float = Field(description="of each step")
    weights_s: float = Field(description="of reading the weights")
    prefill_token_s: float = Field(description="of each prompt token")
    decode_sequence_s: float = Field(description="of each decoding sequence")
    context_token_s: float = Field(description="of each token of context")
    kv_tokens: int = Field(description="room for contexts, tokens")


class ReplicaState(BaseModel):
    """A replica. Only administrators see `url` and `last_error`."""

    name: str
    url: str = ""
    last_error: str | None = None
    healthy: bool
    draining: bool = Field(description="whether it takes no new programs")
    failures: int
    kind: str = Field(
        description="weft: the engine runs Weft's plugin; vllm; stock; gateway: a Weft gateway, "
        "which gets no calls; unknown"
    )
    models: list[str]
    max_model_len: dict[str, int] = Field(description="tokens, by model, if the engine reports it")
    refuses: list[str] = Field(description="credentials of the gateway that the replica refuses")
    slots: int = Field(description="calls that it runs at once; 0 if it does not report them")
    costs: StepCosts | None = Field(None, description="if the engine reports them")
    calls_in_flight: int


class FailingTask(BaseModel):
    """A background task that failed within the last 30 s."""

    name: str
    failures: int
    last_error: str


class Health(BaseModel):
    """The state of the gateway and of its replicas."""

    status: Literal["ok", "no_replica", "table_unavailable", "replica_key_refused"]
    table: TableState
    replicas: list[ReplicaState]
    failing_tasks: list[FailingTask]


class PrefillState(BaseModel):
    """The handle of a prefill."""

    id: str
    object: Literal["weft.prefill"]
    session_id: str
    model: str
    messages: int = Field(description="number of announced messages")
    status: Literal["running", "done", "failed"]
    detail: str | None = Field(description="the reason for the status")
    replica: str
    created_at: float
    expires_at: float
    prompt_tokens: int | None
    service_s: float | None


class DeletedPrefill(BaseModel):
    """The prefill is discarded."""

    id: str
    object: Literal["weft.prefill.deleted"]
    deleted: bool


class TagFates(BaseModel):
    """The fate of each tag, in the order of the request."""

    session_id: str
    object: Literal["weft.hint"]
    fates: list[str]


class PriorityFates(BaseModel):
    """The hint's fate at each replica."""

    session_id: str
    object: Literal["weft.hint"]
    fates: dict[str, dict[str, str]] = Field(
        description="by `retain` and `priority`, then by replica"
    )


class ReplicaAnswer(BaseModel):
    """A replica's answer to the gateway."""

    status: int | None = Field(description="null if the replica did not answer")
    answer: Any = Field(None, description="the body")
    error: str = Field("", description="the kind of failure, if the replica did not answer")


class AppliedPolicy(BaseModel):
    """The outcome of a change of the policy."""

    policy: str
    applied: bool = Field(description="whether every replica applied it")
    replicas: dict[str, ReplicaAnswer]
    options: dict[str, float] | None = Field(None, description="the changed options")


class Member(BaseModel):
    """A replica as a member of the gateways. The counts cover all gateways."""

    name: str
    url: str
    state: Literal["serving", "draining", "down"] = Field(
        description="down: it serves, but does not pass its health checks at this gateway"
    )
    healthy: bool = Field(description="whether it passes the health checks of this gateway")
    since: float | None = Field(
        description="when it was added or its drain began or ended; null for a replica of the "
        "settings that was not changed"
    )
    homes_until: float | None = Field(
        description="when programs begin to move to other replicas; null if it does not drain"
    )
    models: list[str]
    calls_in_flight: int
    homes: int = Field(description="programs that have it as their home")
    safe_to_delete: bool
    waits_for: list[str] = Field(description="why it is not safe to delete; empty if it is")


class MemberList(BaseModel):
    """All replicas."""

    replicas: list[Member]


class RemovedMember(BaseModel):
    """The replica is no member any more."""

    name: str
    removed: bool


class TableIntegrity(BaseModel):
    """The process table."""

    violations: list[str] = Field(description="broken invariants; empty if the table is sound")
    in_flight: dict[str, int] = Field(description="calls of this gateway in flight, by replica")
    work: dict[str, int] = Field(
        description="predicted cost of the open calls of all gateways, microseconds by replica"
    )
    programs: dict[str, int] = Field(description="programs `created`, `ended` and `alive`")
    local: bool = Field(description="whether the store is away and the table runs in memory")


class ReplicaMemory(BaseModel):
    """The programs that this gateway admits to the KV cache of one replica, in tokens."""

    cache_tokens: int = Field(description="this gateway's part of the cache")
    residents: int = Field(description="programs that keep their contexts between calls")
    kept_tokens: int = Field(description="the predicted contexts of the residents")
    held: int = Field(description="calls that wait")


class MemoryState(BaseModel):
    """Admission to the KV caches of replicas without Weft's plugin."""

    violations: list[str]
    replicas: dict[str, ReplicaMemory]


class BalancerState(BaseModel):
    """How the gateway selects a replica."""

    name: str
    alpha: float | None = Field(description="of the balancer `work`; null for the others")


class GatewayState(BaseModel):
    """Every replica's answer to `GET /weft/state`, the balancer, the process table, admission."""

    replicas: dict[str, ReplicaAnswer]
    balancer: BalancerState
    table: TableIntegrity
    memory: MemoryState


class CallReceipt(BaseModel):
    """How one call was identified, placed, ordered and served."""

    object: Literal["receipt"]
    request_id: str
    call: str
    tenant: str = Field(description="name of the key in the keys file, or its digest, or public")
    session: str | None
    thread: str | None
    parent: str | None = Field(description="the thread that started this one")
    joins: list[str] = Field(description="threads whose answers the call continues")
    known_by: str | None = Field(description="the name that assigned the call to its session")
    endpoint: str
    model: str
    arrived_at: float
    outcome: str = Field(description="ok, error, aborted, refused or in_flight")
    status: int | None = Field(description="HTTP status of the answer")
    error: str | None
    place: dict[str, Any] | None = Field(
        description="the chosen replica with the reason, the scores, the predicted costs, and "
        "replicas that were rejected or failed"
    )
    order: dict[str, Any] | None = Field(
        description="the values by which the engine ordered the call"
    )
    predicted: dict[str, Any]
    actual: dict[str, Any] | None = Field(description="as the engine reported it")
    memory: dict[str, Any] | None = Field(
        description="how long the call was deferred for KV memory, the tokens of its context and "
        "the programs ahead of it at first, also in words; null if it was not"
    )
    slo: dict[str, Any] | None = Field(
        description="class, target, the call's budget, predicted and actual time, and why it took "
        "longer; null without a target"
    )
    times: dict[str, Any]
    hints: list[dict[str, str]] = Field(description="each hint with its fate")
    saved_s: dict[str, float] = Field(description="seconds saved, by overlap")
    tools_dispatched: list[dict[str, Any]] = Field(
        description="tool calls that were dispatched before the answer ended"
    )


class SessionStory(BaseModel):
    """The receipts of a session's calls, and the threads that follow from them."""

    object: Literal["session.story"]
    session: str
    saved_s: dict[str, float]
    threads: list[dict[str, Any]]
    threads_left_out: int
    critical_path: dict[str, Any]
    receipts: list[CallReceipt]
    refused: list[CallReceipt]
