"""A tenant's weight and limits."""

from __future__ import annotations

from typing import Final

from weft_gateway.model.record import record
from weft_gateway.model.spending import Allowance

# Limits of weights in files. The weight of a key is multiplied by that of its class, and service is
# divided by the product.
MIN_WEIGHT: Final = 0.001
MAX_WEIGHT: Final = 1000.0


@record
class Budget:
    """The budget of a key or a class. per: day, month, or "" for one that is never full again."""

    allowance: Allowance
    per: str = ""


@record
class TenantRules:
    """The rules of one tenant, which is one API key.

    weight: the tenant's share of engine time relative to other tenants under contention, positive.
    The limits are integers; 0 means no limit. tokens_per_minute counts prompt and output tokens.
    calls_in_flight counts calls that have not ended. budget: of all its calls; None for none.
    """

    weight: float = 1.0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    calls_in_flight: int = 0
    budget: Budget | None = None

    @property
    def limited(self) -> bool:
        """Whether any limit is set."""
        return bool(self.requests_per_minute or self.tokens_per_minute or self.calls_in_flight)


@record
class Quota:
    """The answer to a request for admission.

    refused: the name of the reached limit, as in TenantRules, or "" if the call is admitted.
    wait_s: seconds until a refused call can be admitted, 0 if unknown. requests_left, tokens_left:
    what remains of the minute's limits; below 0 while a tenant has used more tokens than were
    estimated.
    """

    refused: str = ""
    wait_s: float = 0.0
    requests_left: float = 0.0
    tokens_left: float = 0.0
