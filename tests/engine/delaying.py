"""A KV connector that keeps the blocks of ended requests until it has sent them, as NIXL's does."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)


class DelayingConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """Its half in the scheduler; nothing is sent."""

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """It has nothing to load."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to do."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing to say to the worker."""
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """The blocks are freed when they are sent."""
        return True, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing to do."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to do."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **_: Any) -> None:
        """Nothing to do."""

    def wait_for_save(self) -> None:
        """Nothing to do."""
