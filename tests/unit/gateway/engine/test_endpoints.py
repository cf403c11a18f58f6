"""The table of endpoints."""

from weft_gateway.engine.endpoints import BY_PATH, ENDPOINTS


def test_names_are_unique_metric_labels() -> None:
    assert len({endpoint.name for endpoint in ENDPOINTS}) == len(ENDPOINTS) == len(BY_PATH)


def test_only_messages_uses_anthropics_format() -> None:
    assert [e.path for e in ENDPOINTS if e.errors == "anthropic"] == ["/v1/messages"]


def test_terminal_markers_begin_a_line() -> None:
    assert [e.name for e in ENDPOINTS if not e.terminals] == ["embeddings"]
    for endpoint in ENDPOINTS:
        for terminal in endpoint.terminals:
            assert terminal.startswith((b"data: ", b"event: "))
            assert b"\n" not in terminal
