"""The bodies of the routes for batches."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, Field

MAX_WINDOW_S: Final = 7 * 86_400
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def window_s(text: str) -> int:
    """Return the seconds of a completion window such as `24h`. Raises ValueError."""
    found = _WINDOW.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_WINDOW_S:
        raise ValueError(
            "must be a number with the unit s, m, h or d, at most 7 days, for example 24h"
        )
    return seconds


def _is_window(text: str) -> str:
    window_s(text)
    return text


_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]


class ExpiresAfter(BaseModel):
    """When a file is deleted."""

    anchor: Literal["created_at"] = Field(description="the creation of the file")
    seconds: int = Field(ge=3600, le=2_592_000)


class NewBatch(BaseModel):
    """A batch to create."""

    input_file_id: str = Field(description="id of a file with the purpose `batch`")
    endpoint: Literal[
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
    ] = Field(description="the endpoint of all requests")
    completion_window: Annotated[str, AfterValidator(_is_window)] = Field(
        description="after this time, requests that were not executed expire: a number with the "
        "unit s, m, h or d, at most 7 days; OpenAI knows only 24h"
    )
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = Field(
        None, description="at most 16 pairs, shown with the batch"
    )
    output_expires_after: ExpiresAfter | None = Field(
        None, description="when the files with results are deleted, if sooner than other files"
    )
