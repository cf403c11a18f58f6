"""The settings of files and batches, a part of `weft_gateway.config.Settings`."""

from __future__ import annotations

from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings

DAY_S: Final = 86_400.0


class BatchSettings(BaseSettings):
    """Storage and limits of files and batches."""

    data_dir: str = Field(
        "",
        description="folder of files and batches on a local disk, which the gateways of a machine "
        "may share; empty: `.weft/gateway-PORT` in the working folder",
    )
    file_bytes: int = Field(
        209_715_200,
        ge=1024,
        le=10_737_418_240,
        description="maximum size of a file and of the requests of a batch, bytes",
    )
    file_bytes_per_tenant: int = Field(
        10_737_418_240,
        ge=0,
        description="files of one tenant, with the results of its batches; beyond it, uploads and "
        "new batches are refused; bytes",
    )
    files_per_tenant: int = Field(
        10_000, ge=1, le=1_000_000, description="maximum files of one tenant"
    )
    file_keep_s: float = Field(
        30 * DAY_S,
        ge=1,
        description="files and ended batches are deleted after this time, seconds",
    )
    batches_per_tenant: int = Field(
        100, ge=1, le=10_000, description="maximum unfinished batches of one tenant"
    )
    batch_calls: int = Field(
        32,
        ge=1,
        le=65_536,
        description="calls of batches in flight at a replica that does not report its slots",
    )

    def data_folder(self, port: int) -> str:
        """Return the folder of files and batches for a gateway that listens on `port`."""
        return self.data_dir or f".weft/gateway-{port}"
