"""Which routes pass without a program."""

import pytest

from gateway.api.passthrough import methods


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/messages/count_tokens", ("POST",)),
        ("/tokenize", ("POST",)),
        ("/v1/responses/resp_1", ("GET", "DELETE")),
        ("/v1/responses/resp_1/cancel", ("POST",)),
        ("/v1/responses/resp_1/input_items", ("GET",)),
        ("/v1/responses/", ()),
        ("/v1/responses/a/b", ()),
        ("/v1/chat/completions", ()),
        ("/metrics", ()),
        ("/weft/policy", ()),
        ("/shutdown", ()),
    ],
)
def test_only_what_is_listed_passes(path: str, allowed: tuple[str, ...]) -> None:
    assert methods(path) == allowed
