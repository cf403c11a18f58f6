"""What the calls of each day have used, by payer. Pure; the rules of all process tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Final

from weft_gateway.model import Closing, Outcome
from weft_gateway.model.usage import Payer, Used

# A month and the one before it.
KEEP_DAYS: Final = 62
# Payers of a day. Programs beyond them share a row for each key and model.
MOST_ROWS: Final = 10_000
DAY_S: Final = 86_400
_1970: Final = date(1970, 1, 1).toordinal()


@lru_cache(maxsize=8)
def _day(number: int) -> str:
    return date.fromordinal(_1970 + number).isoformat()


def day_of(at_s: float) -> str:
    """Return the day in UTC, as in ISO 8601. at_s: Unix time."""
    return _day(int(at_s // DAY_S))


def used_by(closing: Closing) -> Used:
    """Return what a call used."""
    failed = closing.outcome is Outcome.ERROR
    return Used(
        1,
        int(failed),
        int(not failed and not closing.prompt_tokens),
        closing.prompt_tokens,
        closing.cached_tokens,
        closing.output_tokens,
        round(closing.service_s * 1e6),
        closing.nanodollars,
    )


class Ledger:
    """The days in this process's memory, the latest KEEP_DAYS of them."""

    def __init__(self) -> None:
        self.days: dict[str, dict[Payer, Used]] = {}

    def close(self, closing: Closing) -> None:
        """Add a call that has closed."""
        payer = closing.payer
        if payer is None or closing.outcome is Outcome.REFUSED:
            return
        day = day_of(closing.now_s)
        rows = self.days.get(day)
        if rows is None:
            rows = self.days[day] = {}
            while len(self.days) > KEEP_DAYS:
                del self.days[min(self.days)]
        if payer not in rows and len(rows) >= MOST_ROWS:
            payer = Payer(payer.tenant, "", payer.model, "")
        rows[payer] = rows.get(payer, Used()).plus(used_by(closing))

    def of(self, day: str, tenant: str = "") -> Mapping[Payer, Used]:
        """Return a day, of one tenant or of all ("")."""
        rows = self.days.get(day, {})
        return {who: used for who, used in rows.items() if not tenant or who.tenant == tenant}
