"""The gateway's tags."""

from weft_engine.tags import Tag as Engines
from weft_gateway.model.tag import Tag


def test_tags_equal_those_of_the_engine() -> None:
    assert {tag.name: tag.value for tag in Tag} == {tag.name: tag.value for tag in Engines}
