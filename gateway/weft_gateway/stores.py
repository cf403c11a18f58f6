"""The stores that the settings select: in memory, or on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.model.slo import Slos
from weft_gateway.programs.limits import Limiter
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.members import MemberStore, RedisMembers
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.response_store import ResponseStore
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry.aggregates import Counters
from weft_gateway.tenants import Tenants

if TYPE_CHECKING:
    from weft_gateway.programs.redis_link import RedisLink


def make_table(settings: Settings, constants: Constants, failures: Counters) -> ProcessTable:
    """Create the process table that the settings select. failures: as in Supervisor."""
    if settings.redis_url:
        # The Redis client is neither loaded nor required if the table is in memory.
        from weft_gateway.programs.redis import RedisTable
        from weft_gateway.programs.resilient import ResilientTable

        return ResilientTable(
            RedisTable(
                settings.redis_url,
                lease_s=constants.call_lease_s,
                timeout_s=constants.redis_timeout_s,
                per_tenant=constants.max_programs_per_tenant,
            ),
            failed=failures.labels("process_table").inc,
        )
    return MemoryTable(per_tenant=constants.max_programs_per_tenant)


class Stores(NamedTuple):
    """State beside the process table: in memory, or on the table's Redis."""

    chains: ResponseStore
    limiter: Limiter
    lineage: MemoryLineage
    members: MemberStore


def make_stores(constants: Constants, answers_bytes: int, link: RedisLink | None) -> Stores:
    """Create the stores. answers_bytes: the limit of stored answers. link: the process table's
    Redis client, if it has one.
    """
    if link is None:
        return Stores(
            ResponseStore(answers_bytes),
            Limiter(),
            MemoryLineage(),
            MemberStore(),
        )
    from weft_gateway.programs.lineage.redis import RedisLineage
    from weft_gateway.programs.redis_limits import RedisLimiter
    from weft_gateway.programs.redis_response_store import RedisResponseStore

    return Stores(
        RedisResponseStore(link, limit=answers_bytes),
        RedisLimiter(link),
        RedisLineage(link),
        RedisMembers(link, constants.call_lease_s),
    )


def make_tenants(settings: Settings, slos: Slos) -> Tenants:
    """Load the keys and the rules of all tenants. Raises TenantsError if the file has become
    invalid since the settings were loaded.
    """
    priced = bool(settings.prices_file)
    return Tenants(settings.keys_file, settings.api_keys, slos, priced)
