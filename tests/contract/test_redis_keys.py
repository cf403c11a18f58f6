"""Scripts declare every key that they touch, on a real Redis server."""

from __future__ import annotations

import time

from support.redis_rows import age_leases, monitored
from support.redis_table import run
from support.table import closing, opening
from weft_gateway.model import ProgramAttribute, ProgramKey
from weft_gateway.model.member import Member
from weft_gateway.model.usage import Payer, Used
from weft_gateway.programs.lineage.marks import Entry, Mark
from weft_gateway.programs.lineage.redis import RedisLineage
from weft_gateway.programs.members import RedisMembers
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.redis_response_store import RedisResponseStore
from weft_gateway.programs.response_store import StoredResponse


def test_scripts_declare_every_key_that_they_touch(redis_server):
    """A cluster and a proxy route a script by its declared keys only."""

    async def steps(table):
        prefix = table._store.keys.base.decode()[1:-2]
        small = RedisTable(redis_server.url, prefix, timeout_s=20.0, per_tenant=2)
        responses = RedisResponseStore(table.link, keep_s=100.0, limit=2000)
        lineage = RedisLineage(small.link, limit=4)
        with monitored(redis_server.port) as monitor:
            await run_every_script(small, responses, lineage)
            await table._store.redis.echo("the end of this test")
            scripts = declared = 0
            keys: set[bytes] = set()
            for by_script, (name, *words) in monitor.until(b"the end of this test"):
                name = name.upper()
                if by_script:
                    assert touched(name, words) <= keys, (name, words, keys)
                    scripts += 1
                elif name in (b"EVALSHA", b"EVAL"):
                    keys = set(words[2 : 2 + int(words[1])])
                    declared += 1
            assert scripts > declared > 20
        await small.aclose()

    run(redis_server, steps)


async def run_every_script(table, responses, lineage) -> None:
    """Run every script, including each branch that touches other keys."""
    calls = [opening(ProgramKey("t", f"p{n}"), now=float(n + 1), sticky=True) for n in range(5)]
    for o in calls:
        await table.open_call(o)
        who = Payer("t", "codex", "tiny", o.key.program)
        await table.close_call(closing(o, now=o.now_s + 0.5, service_s=1.0, payer=who))
    await table.charge("1970-01-01", {who: Used(1)}, "name")
    assert len(await table.programs("t", 9)) == 2
    ephemeral_call = opening(ProgramKey("t", "n"), now=9.0, ephemeral=True)
    await table.open_call(ephemeral_call)
    await table.close_call(closing(ephemeral_call, now=10.0))
    for number in range(4):
        await table.start(ProgramKey("t", f"s{number}"), 20.0 + number)
        await table.set_attribute(
            ProgramKey("t", f"u{number}"), ProgramAttribute("x", "y", 99.0), 30.0 + number
        )
    await table.set_attribute(ProgramKey("t", "u3"), ProgramAttribute("x", "", 99.0), 40.0)
    abandoned = opening(ProgramKey("t", "abandoned"), now=41.0)
    await table.open_call(abandoned)
    await table.expire(42.0, 10.0)
    await age_leases(table, 1000.0)
    await table._store.redis.delete(table._store.keys.row(abandoned.key))
    await table.count()
    table._leases.clear()
    await table.expire(60.0, 10.0)
    key = ProgramKey("t", "replayed")
    await table.reopen([o := opening(key, now=61.0)])
    await table.close_call(closing(o, now=62.0))
    await table.end(key, 63.0)
    members = RedisMembers(table.link, lease_s=100.0)
    record = Member("r0", "http://r0")
    await members.write({"r0": record}, (await members.read(frozenset())).version)
    await members.write({"r0": None}, (await members.read(frozenset({"r0"}))).version)
    await members.leave()
    await table.homes()
    for number in range(5):
        key = ProgramKey(f"t{number % 2}", "p")
        await responses.remember(key, {f"resp_{number}": StoredResponse("p")})
    await responses.find("t0", "resp_4")
    await responses.find("t1", "resp_unknown")
    assert await responses._read("t0", "resp_4", 0)
    await responses.forget("t0", "resp_4")
    for number in range(6):
        mark = Mark(f"p{number}", "main", 1, time.time(), 1, 1)
        entries = [Entry(number * 2, mark), Entry(number * 2 + 1, mark)]
        folds = [(f"p{number}", f"p{number + 1}")]
        await lineage.put("t", entries, folds, time.time())
    assert (await lineage.get_many("t", [11, 10, 9, 1], time.time())).folded


def touched(name: bytes, words: list[bytes]) -> set[bytes]:
    """Return the keys of a command that a script runs."""
    if name in (b"TIME", b"PING"):
        return set()
    if name in (b"MGET", b"DEL", b"UNLINK", b"EXISTS"):
        return set(words)
    return {words[0]}
