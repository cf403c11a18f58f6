"""What keys, agents, models and programs have used by day: in Weft's form, and in the forms of the
usage reports of OpenAI and Anthropic.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import groupby
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AfterValidator

from weft_gateway.api.admin import seeing
from weft_gateway.api.auth import Authenticator, Sight
from weft_gateway.api.lists import listed
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.errors import ApiError, invalid_member
from weft_gateway.model.spending import NANO
from weft_gateway.model.usage import Used
from weft_gateway.programs.table import ProcessTable

_COLUMNS: Final = ("day", "key", "agent", "model", "program")
_DAY: Final = timedelta(days=1)
_MOST_DAYS: Final = 366
_MOST_ROWS: Final = 20_000
# Rows that are summed in one turn, and the size of a body that takes as long to read.
_A_TURN: Final = 512
_TURN_BYTES: Final = 1 << 16
_Time = TypeVar("_Time", bound=date)
# A cell that begins so is a formula for spreadsheets, and clients choose the names of programs.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
# Columns by the names that the providers have for them. They know no others, but may ask for them.
_GROUPS: Final = {"api_key_id": "key"} | {name: name for name in _COLUMNS[2:]}


def _checked(time: _Time) -> _Time:
    """Return a time in UTC. Raises ValueError if a calculation with it might overflow."""
    if not 2000 <= time.year < 3000:
        raise ValueError("must be in this millennium")
    if not isinstance(time, datetime):
        return time
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


_Group = tuple[str, ...]
_Only = Mapping[str, Collection[str]]
_Day = Annotated[date, AfterValidator(_checked)]
_Moment = Annotated[datetime, AfterValidator(_checked)]
_Text = Annotated[str, Query(description="only its calls")]
_Seconds = Annotated[int, Query(ge=0, lt=1 << 36, description="Unix time; its day is the first")]
_End = Annotated[int | None, Query(ge=0, lt=1 << 36, description="Unix time, exclusive")]
_Begin = Annotated[_Moment, Query(description="RFC 3339; its day is the first")]
_Ending = Annotated[_Moment | None, Query(description="RFC 3339, exclusive")]
_PROVIDERS: Final = (
    " The counts of `/v1/usage` in the form of the provider, whose clients read it. Buckets are "
    "days, and `api_key_id` is the name of a key."
)


class _Asked(NamedTuple):
    """What a provider's client asks for. by: columns. only: values by column. limit: days of a
    page. after: its first day, if it is not the first page.
    """

    by: _Group
    only: _Only
    limit: int
    after: date | None


def _asked(
    request: Request,
    bucket_width: Annotated[Literal["1d"], Query(description="only days")] = "1d",
    group_by: Annotated[
        tuple[str, ...],
        Query(alias="group_by[]", description=f"of {', '.join(_GROUPS)}; others are null"),
    ] = (),
    keys: Annotated[
        tuple[str, ...], Query(alias="api_key_ids[]", description="names of keys")
    ] = (),
    models: Annotated[tuple[str, ...], Query(alias="models[]", description="names of models")] = (),
    limit: Annotated[int, Query(ge=1, le=31, description="days of a page")] = 7,
    page: Annotated[_Day | None, Query(description="`next_page` of the page before")] = None,
) -> _Asked:
    """Read the parameters that the providers have in common."""
    # Clients write the names of lists with brackets or without them.
    bare = request.query_params.getlist
    asked = (*group_by, *bare("group_by"))
    by = dict.fromkeys(_GROUPS[name] for name in asked if name in _GROUPS)
    only = {"key": (*keys, *bare("api_key_ids")), "model": (*models, *bare("models"))}
    return _Asked(("day", *by), only, limit, page)


_Common = Annotated[_Asked, Depends(_asked)]


def router(auth: Authenticator, table: ProcessTable, turns: Turns, settings: Settings) -> APIRouter:
    """Create the routes of usage."""
    api, see = APIRouter(tags=["usage"]), seeing(auth, settings)

    async def sums(
        sight: Sight, days: Iterable[date], by: _Group, only: _Only
    ) -> dict[_Group, Used]:
        """Return what was used by group, in the order of groups. only: values by column, none for
        all.
        """
        found: dict[_Group, Used] = {}
        for day in days:
            text, tenant = day.isoformat(), sight.tenant or ""
            rows = list((await table.usage(text, tenant)).items())
            for first in range(0, len(rows), _A_TURN):
                await turns.take(tenant, _TURN_BYTES)
                for (who, *rest), used in rows[first : first + _A_TURN]:
                    shown = dict(zip(_COLUMNS, (text, auth.name(who), *rest), strict=True))
                    if any(values and shown[name] not in values for name, values in only.items()):
                        continue
                    group = tuple([shown[name] for name in by])
                    known = found.get(group)
                    if known is None and len(found) >= _MOST_ROWS:
                        what = f"The usage has more than {_MOST_ROWS} rows. Ask for fewer days."
                        raise ApiError(400, "too_many_rows", what)
                    found[group] = used if known is None else known.plus(used)
        return dict(sorted(found.items()))

    @api.get(
        "/v1/usage",
        summary="Get usage by day, key, agent, model and program",
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    async def get_usage(
        request: Request,
        by: Annotated[str, Query(description=f"of {','.join(_COLUMNS)}, with commas")] = "day",
        first: Annotated[
            _Day | None, Query(alias="from", description="first day, UTC; default: six days ago")
        ] = None,
        last: Annotated[
            _Day | None, Query(alias="to", description="last day, UTC; default: today")
        ] = None,
        key: _Text = "",
        agent: _Text = "",
        model: _Text = "",
        program: _Text = "",
        format: Annotated[Literal["json", "csv"], Query(description="of the answer")] = "json",
    ) -> Response:
        """Sums of the calls that have ended. The admin key sees all keys, another one its own.
        `input_tokens` are prompt tokens without cached ones. `agent` is the name in the client's
        user agent, `batch`, or `prefill` for calls that the gateway makes ahead. `program` is null
        for calls without a session. `uncounted` are calls whose tokens the engine did not tell. 503
        while Redis is away."""
        sight = see(request)
        columns = tuple(dict.fromkeys(by.split(",")))
        if not {*columns} <= {*_COLUMNS}:
            raise invalid_member(("by",), f"must be of {', '.join(_COLUMNS)}")
        end = last or datetime.now(UTC).date()
        begin = first or end - 6 * _DAY
        if not 0 <= (end - begin).days < _MOST_DAYS:
            raise invalid_member(("from",), f"must be at most {_MOST_DAYS} days before `to`")
        given = {"key": key, "agent": agent, "model": model, "program": program}
        only = {name: (value,) for name, value in given.items() if value}
        days = [begin + n * _DAY for n in range((end - begin).days + 1)]
        found = await sums(sight, days, columns, only)
        if format == "csv":
            return Response(_csv(columns, found), media_type="text/csv")

        def shown(row: tuple[_Group, Used]) -> dict[str, Any]:
            group = zip(columns, row[0], strict=True)
            return {name: value or None for name, value in group} | _amounts(row[1])

        answer = {
            "object": "usage",
            "from": begin,
            "to": end,
            "by": columns,
            "data": await listed(turns, sight.tenant or "", found.items(), shown),
            "total": _amounts(reduce(Used.plus, found.values(), Used())),
        }
        return Response(orjson.dumps(answer), media_type="application/json")

    async def page(
        request: Request, begin: date, end: datetime | None, asked: _Asked
    ) -> tuple[dict[date, list[tuple[dict[str, str | None], Used]]], dict[str, Any]]:
        """Return the columns and sums of each day, and the members about further pages."""
        by, only, limit, after = asked
        first = after or begin
        past = (end or datetime.now(UTC)) - timedelta(microseconds=1)
        more = (past.date() - first).days + 1
        days = [first + n * _DAY for n in range(min(more, limit))]
        found = await sums(see(request), days, by, only)
        rows = {
            date.fromisoformat(day): [
                (dict(zip(by[1:], [name or None for name in group[1:]], strict=True)), used)
                for group, used in of_day
            ]
            for day, of_day in groupby(found.items(), lambda item: item[0][0])
        }
        following = first + limit * _DAY if more > limit else None
        pages = {"has_more": following is not None, "next_page": following}
        return {day: rows.get(day, []) for day in days}, pages

    @api.get(
        "/v1/organization/usage/completions",
        summary="Get usage in OpenAI's form",
        description="What `client.admin.organization.usage.completions` asks for." + _PROVIDERS,
    )
    async def get_openai_usage(
        request: Request, asked: _Common, start_time: _Seconds, end_time: _End = None
    ) -> dict[str, Any]:
        begin = datetime.fromtimestamp(start_time, UTC).date()
        end = None if end_time is None else datetime.fromtimestamp(end_time, UTC)
        days, pages = await page(request, begin, end, asked)
        data = [
            {
                "object": "bucket",
                "start_time": int(_begin(day).timestamp()),
                "end_time": int(_begin(day + _DAY).timestamp()),
                "results": [
                    {
                        "object": "organization.usage.completions.result",
                        "input_tokens": used.prompt_tokens,
                        "input_cached_tokens": used.cached_tokens,
                        "output_tokens": used.output_tokens,
                        "num_model_requests": used.calls,
                        "api_key_id": of.pop("key", None),
                        "model": of.pop("model", None),
                        **dict.fromkeys(("project_id", "user_id", "batch", "service_tier")),
                        **of,
                    }
                    for of, used in rows
                ],
            }
            for day, rows in days.items()
        ]
        return {"object": "page", "data": data, **pages}

    @api.get(
        "/v1/organizations/usage_report/messages",
        summary="Get usage in Anthropic's form",
        description="Anthropic's messages usage report." + _PROVIDERS,
    )
    async def get_anthropic_usage(
        request: Request, asked: _Common, starting_at: _Begin, ending_at: _Ending = None
    ) -> dict[str, Any]:
        days, pages = await page(request, starting_at.date(), ending_at, asked)
        data = [
            {
                "starting_at": _begin(day),
                "ending_at": _begin(day + _DAY),
                "results": [
                    {
                        "uncached_input_tokens": used.prompt_tokens - used.cached_tokens,
                        "cache_read_input_tokens": used.cached_tokens,
                        "cache_creation": dict.fromkeys(_CREATED, 0),
                        "output_tokens": used.output_tokens,
                        "server_tool_use": {"web_search_requests": 0},
                        "api_key_id": of.pop("key", None),
                        "model": of.pop("model", None),
                        **dict.fromkeys(("workspace_id", "service_tier", "context_window")),
                        **of,
                    }
                    for of, used in rows
                ],
            }
            for day, rows in days.items()
        ]
        return {"data": data, **pages}

    return api


_CREATED: Final = ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens")


def _begin(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _amounts(used: Used) -> dict[str, int | float]:
    """Return sums with the names of budgets."""
    return {
        "calls": used.calls,
        "failed": used.failed,
        "uncounted": used.uncounted,
        "input_tokens": used.prompt_tokens - used.cached_tokens,
        "cached_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "engine_s": used.engine_us / 1e6,
        "dollars": used.nanodollars / NANO,
    }


def _csv(columns: _Group, found: Mapping[_Group, Used]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*columns, *_amounts(Used())))
    for group, used in found.items():
        cells = [f"'{name}" if name.startswith(_FORMULA) else name for name in group]
        *counts, dollars = _amounts(used).values()
        writer.writerow((*cells, *counts, f"{dollars:.9f}"))
    return text.getvalue()
