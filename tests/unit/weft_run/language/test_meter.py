"""Templates have limits: a template cannot make endless work or endless text."""

from __future__ import annotations

from typing import Any

import pytest
from weft_run.language.templates import Template, TemplateError

MANY: dict[str, Any] = {
    "xs": list(range(10_000)), "more": list(range(10_000)), "text": "a" * 10_000,
    "nested": [[], []],
}  # fmt: skip
LIST = f"[{', '.join(['{}'] * 16)}]"


def loops(depth: int, body: str) -> str:
    begin = "".join(f"{{% for x{n} in xs %}}" for n in range(depth))
    return f"{begin}{body}{'{% endfor %}' * depth}"


def nested(value: str, body: str) -> str:
    """Seven loops, each of which makes a value of that of the loop around it."""
    begin, inner = "", "('a' * 1000)"
    for number in range(7):
        begin += f"{{% for v{number} in [{value.replace('{}', inner)}] %}}"
        inner = f"v{number}"
    return f"{begin}{body}{'{% endfor %}' * 7}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**10 }}",
        "{{ [1] * 10**10 }}",
        "{{ 10**10 * 'a' }}",
        "{{ ((10**64)**64)**64 }}",
        "{{ (((10**64) * (10**64))**32) * (10**64)**32 }}",
        loops(3, "x"),
        loops(1, "{% if (text ~ text) == '' %}{% endif %}"),
        loops(1, "{{ xs | sum }}"),
        loops(1, "{{ xs | map('string') | join }}"),
        loops(1, "{{ text }}"),
        loops(1, "{{ text.upper() | length }}"),
        loops(1, "x" * 10_000),
        "{% for a in nested recursive %}{{ loop(nested) }}{% endfor %}",
        "{{ text | replace('a', text) }}",
        "{{ text.replace('a', text) }}",
        "{{ xs | join(text) }}",
        "{{ text.join(['a'] * 10000) }}",
        "{{ text.join(text) }}",
        "{{ 1.5 | round(10**9, 'ceil') }}",
        "{{ xs | slice(10**9) | list | length }}",
        "{{ ([[1]] * 10) | sum(start=[]) | length }}",
        loops(1, "{{ (xs + xs) | length }}"),
        nested(" + ".join(["{}"] * 16), "{{ v6 | length }}"),
        nested("~".join(["{}"] * 16), "{{ v6 | length }}"),
        nested(LIST, "{{ v6 }}"),
        nested(LIST, "{{ v6 | tojson | length }}"),
        nested(LIST, "{{ v6 | string | length }}"),
        nested(LIST, "{{ v6 | upper | length }}"),
        nested(LIST, "{{ (v6 ~ '') | length }}"),
        nested(LIST, "{{ [v6] | join | length }}"),
        nested(LIST, "{{ v6 is lower }}"),
        nested(LIST, "{{ [v6, v6] | sort | length }}"),
        nested(LIST, "{{ v6 == [v5] * 16 }}"),
        loops(1, "{% if [0] * 100000 %}{% endif %}"),
        loops(1, "{% if 'a' * 100000 %}{% endif %}"),
        loops(1, "{% if xs == more %}{% endif %}"),
        loops(1, "{% if xs is eq(more) %}{% endif %}"),
        loops(1, "{% if text in text %}{% endif %}"),
        loops(1, "{% if -1 in xs %}{% endif %}"),
        loops(1, "{% if -1 is in(xs) %}{% endif %}"),
        loops(1, "{% if xs[1:] %}{% endif %}"),
        "{{ ([xs] * 1000) | select('eq', more) | list | length }}",
        "{{ text.rfind('b' ~ text) }}",
        "{% for c in text * 100 ~ text %}{% endfor %}",
        "{{ (text * 100 ~ text) | join | length }}",
        "{{ (text * 100 ~ text) | sort | length }}",
        "{{ text.strip(text ~ 'b') }}",
        "{{ text | trim(text ~ 'b') }}",
        "{{ ('a-' * 500000 ~ 'a-' * 500000 ~ '-a') | title | length }}",
        "{{ ('a ' * 500000 ~ 'a ' * 500000 ~ 'a ') | wordcount }}",
        "{{ ('a ' * 500000 ~ 'a ' * 500000).split() | length }}",
        "{{ ('f' * 2000) | int(0, 16) }}",
        "{{ 0xNUMBER // 3 }}".replace("NUMBER", "f" * 2000),
        "{{ 0xNUMBER % 3 }}".replace("NUMBER", "f" * 2000),
        "{{ '%1000000000d' is odd }}",
        "{{ '%1000000000d' is divisibleby(2) }}",
        "{{ text.center(10**9) }}",
        "{{ '%*d' % (10**9, 1) }}",
    ],
)
def test_a_rendering_has_limits(source: str) -> None:
    template = Template.parse(source)
    with pytest.raises(TemplateError):
        template.text(MANY)


@pytest.mark.parametrize("source", ["{% for i in range(10**9) %}x{% endfor %}", "{{ range(3) }}"])
def test_range_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="no function is named 'range'"):
        Template.parse(source)


def test_ordinary_templates_are_within_the_limits() -> None:
    source = (
        "{% for x in xs if x % 2 %}{{ loop.index }}/{{ loop.length }}: {{ x }}\n"
        "{% else %}none{% endfor %}"
    )
    text = Template.parse(source).text({"xs": list(range(2000))})
    assert text.splitlines()[:2] == ["1/1000: 1", "2/1000: 3"]
    source = "{{ xs | map('string') | map('upper') | select | sort(reverse=true) | join(', ') }}"
    assert Template.parse(source).text({"xs": [1, 2]}) == "2, 1"
    source = "{% for name, value in d.items() %}{{ name }}={{ value | default('x') }} {% endfor %}"
    assert Template.parse(source).text({"d": {"a": 1}}) == "a=1 "
    assert Template.parse("{{ a.replace('x', 'yy', 1) | truncate(5) }}").text({"a": "xx"}) == "yyx"
    assert Template.parse("{{ ' '.join(xs) | trim | title }}").text({"xs": ["a", "b"]}) == "A B"
    assert Template.parse("{{ 2.345 | round(2) }} {{ 2 ** 10 }}").text({}) == "2.35 1024"
    source = "{{ 1 < x <= 3 }} {{ 1 < x < 2 }} {{ x in xs }} {{ 'x' not in d }} {{ xs[1:] }}"
    text = Template.parse(source).text({"x": 2, "xs": [1, 2], "d": {"a": 1}})
    assert text == "true false true true [2]"
    source = "{{ xs | select('in', [2, 3]) | list }} {{ 4 is even }} {{ 4 is divisibleby(3) }}"
    assert Template.parse(source).text({"xs": [1, 2, 3]}) == "[2, 3] true false"
