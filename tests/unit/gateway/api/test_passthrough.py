"""Routes that pass without a program."""

import pytest
from weft_gateway.api.passthrough import methods


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (b"/v1/messages/count_tokens", ("POST",)),
        (b"/tokenize", ("POST",)),
        (b"/v1/responses/resp_1", ("GET", "DELETE")),
        (b"/v1/responses/resp_1/cancel", ("POST",)),
        (b"/v1/responses/resp_1/input_items", ("GET",)),
        (b"/v1/responses/", ()),
        (b"/v1/responses/a/b", ()),
        (b"/v1/chat/completions", ()),
        (b"/metrics", ()),
        (b"/weft/policy", ()),
        (b"/shutdown", ()),
        (b"/v1%2Fresponses/resp_1", ()),
        (b"/tokenize%0d%0ax: y", ()),
    ],
)
def test_only_listed_routes_pass(path: bytes, allowed: tuple[str, ...]) -> None:
    assert methods(path) == allowed
