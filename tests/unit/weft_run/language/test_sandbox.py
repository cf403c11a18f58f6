"""Values in templates are JSON: keys, methods, texts of values, missing values."""

from __future__ import annotations

from typing import Any

import pytest
from weft_run.language.templates import Template, TemplateError, evaluated

NAMES = ("items", "values", "keys", "get", "update", "pop", "copy", "clear")
MIXED = ["x", None, {"k": "é"}, True]


def text(source: str, **scope: Any) -> str:
    return Template.parse(source).text(scope)


def value(source: str, **scope: Any) -> Any:
    return evaluated(Template.parse(source), scope)


@pytest.mark.parametrize("name", NAMES)
def test_keys_with_names_of_methods_are_keys(name: str) -> None:
    order = {name: [], "n": 2}
    assert value(f"{{{{ order.{name} }}}}", order=order) == []
    assert value(f"{{{{ order['{name}'] | length }}}}", order=order) == 0
    assert text(f"{{% if order.{name} %}}some{{% else %}}none{{% endif %}}", order=order) == "none"
    assert value(f"{{{{ [order] | map(attribute='{name}') | list }}}}", order=order) == [[]]


def test_a_call_uses_the_method_even_if_a_key_has_its_name() -> None:
    source = "{% for key, one in d.items() %}{{ key }}={{ one }};{% endfor %}"
    assert text(source, d={"a": 1}) == "a=1;"
    assert text(source, d={"items": [2]}) == "items=[2];"
    assert value("{{ d.get('b', 3) }}", d={"a": 1}) == 3


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ d.items }}", "'dict object' has no attribute 'items'"),
        ("{{ d['items'] }}", "'dict object' has no attribute 'items'"),
        ("{{ l.append }}", "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ s.upper }}", "'str object' has no attribute 'upper'"),
        ("{{ l.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ d.clear() }}", "access to attribute 'clear' of 'dict' object is unsafe"),
        ("{{ d.z.items() }}", "'dict object' has no attribute 'z'"),
    ],
)
def test_a_method_is_no_value(source: str, reason: str) -> None:
    scope = {"d": {"a": 1}, "l": [1], "s": "x"}
    with pytest.raises(TemplateError, match=reason):
        value(source, **scope)
    with pytest.raises(TemplateError, match=reason):
        text(f"Text: {source}", **scope)


def test_loops_and_groups_have_properties() -> None:
    groups = "{% for g in xs | groupby('k') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}"
    assert text(groups, xs=[{"k": "a"}, {"k": "b"}, {"k": "a"}]) == "a2b1"
    assert (
        text("{% for x in xs %}{{ loop['index'] }}{{ loop.last }}{% endfor %}", xs=[1]) == "1true"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ d.replace('a', 'b') }}", "xb"),
        ("{{ d.replace('a', 'b', 1) }}", "xb"),
        ("{{ d | replace('a', 'b') }}", "xb"),
        ("{{ '-'.join([d, d]) }}", "xa-xa"),
        ("{{ [d, d] | join('-') }}", "xa-xa"),
        ("{{ d.split('a') }}", '["x", ""]'),
        ("{{ d.split(sep='a') }}", '["x", ""]'),
        ("{{ d.strip('a') }}", "x"),
        ("{{ d | trim('a') }}", "x"),
        ("{{ d | title }}{{ d.title() }}", "XaXa"),
        ("{{ d | round(1) if d is number else d.find('a') }}", "1"),
        ("{{ [1, 2] | sum }}{{ 1.25 | round(1, 'floor') }}", "31.2"),
    ],
)
def test_methods_and_filters_work_in_loops(source: str, expected: str) -> None:
    for depth in range(3):
        begin = "".join(f"{{% for d{at} in ds %}}" for at in range(depth))
        loops = f"{begin}{{% for d in ds if d.replace('a', '') %}}{source}{{% endfor %}}"
        assert text(loops + "{% endfor %}" * depth, ds=["xa"]) == expected
    nested = "{% for d in ds recursive %}{% if d is string %}S{% else %}{{ loop(d) }}{% endif %}"
    body = nested.replace("S", source) + "{% endfor %}"
    assert text(body, ds=[["xa"]]) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ l | join('; ') }}", 'x; ; {"k": "é"}; true'),
        ("{{ rows | join('; ', attribute='k') }}", "; [1]"),
        ("{{ [1, 2] | join(none) }}", "12"),
        ("{{ 'a' ~ none ~ true ~ l[2] ~ 1 }}", 'atrue{"k": "é"}1'),
        ("{{ l[2] | string }}{{ none | string }}", '{"k": "é"}'),
        ("{{ l | map('string') | join('; ') }}", 'x; ; {"k": "é"}; true'),
        ("{{ l | replace('x', 'y') }}", '["y", null, {"k": "é"}, true]'),
        ("{{ l[2:] | upper }}", '[{"K": "É"}, TRUE]'),
        ("{{ l[2] | lower }}{{ none | trim }}{{ true | title }}", '{"k": "é"}True'),
        ("{{ [true] | capitalize }}{{ l[2] | truncate(5, true, leeway=0) }}", '[true]{"...'),
        ("{{ none | wordcount }}", "0"),
        ("{{ l | select | reverse | map('lower') }}", '["true", "{\\"k\\": \\"é\\"}", "x"]'),
    ],
)
def test_values_appear_in_texts_as_json(source: str, expected: str) -> None:
    scope = {"l": MIXED, "rows": [{"k": None}, {"k": [1]}]}
    assert text(source, **scope) == expected
    assert text(f"{{% if true %}}{source}{{% endif %}}", **scope) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ x | map('upper') }}", ["A", "B"]),
        ("{{ [x | reverse, d.items(), d | items] }}", [["b", "a"], [["k", 1]], [["k", 1]]]),
        ("{{ d.keys() }}", ["k"]),
        ("{{ x | slice(2) }}", [["a"], ["b"]]),
        ("{{ {1: 'a', none: true} }}", {"1": "a", "null": True}),
    ],
)
def test_a_value_is_json(source: str, expected: Any) -> None:
    assert value(source, x=["a", "b"], d={"k": 1}) == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ ''.join }}", "has no attribute 'join'"),
        ("{{ [d.zz] }}", "'dict object' has no attribute 'zz'"),
        ("{{ {'a': d.zz} }}", "'dict object' has no attribute 'zz'"),
        ("{{ {(1, 2): 3} }}", "a key of type 'tuple' is not JSON"),
        ("{{ 'nan' | float }}", "the number nan is not JSON"),
        ("{{ [-1e308 * 10] }}", "the number -inf is not JSON"),
        ("{{ deep }}", "nested too deeply; at most 99 levels"),
        ("{{ [deep[0]] }}", "nested too deeply; at most 99 levels"),
    ],
)
def test_other_values_are_errors(source: str, reason: str) -> None:
    deep: list[Any] = []
    for _ in range(99):
        deep = [deep]
    scope = {"d": {}, "deep": deep}
    with pytest.raises(TemplateError, match=reason):
        value(source, **scope)
    with pytest.raises(TemplateError, match=reason):
        text(f"Text: {source}", **scope)
    assert value("{{ deep[0] }}", **scope) == deep[0]


def test_the_name_of_the_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="'self' has no value"):
        Template.parse("{{ self }}")
    with pytest.raises(TemplateError, match="a value of type 'LoopContext' is not JSON"):
        text("{% for x in [1] %}{{ loop }}{% endfor %}")


def test_default_replaces_missing_values() -> None:
    scope = {"d": {"null": None}, "l": []}
    assert text("{{ d.zz | default('x') }}", **scope) == "x"
    assert text("{{ d['zz'] | default('x') }}", **scope) == "x"
    assert text("{{ l | first | default('none') }}", **scope) == "none"
    assert text("{{ l | last | default('none') }}", **scope) == "none"
    assert text("{{ l | max | default('none') }}", **scope) == "none"
    assert text("{{ d.zz is defined }}", **scope) == "false"
    assert text("{{ d.null | default('x') }}", **scope) == ""
    assert text("{{ d.null | default('x', true) }}", **scope) == "x"


@pytest.mark.parametrize(
    "source",
    ["d.zz", "l | first", "d.zz | upper", "d.zz | length", "d.zz ~ ''", "d.zz == 1", "d.zz or 1",
     "d.zz | join", "[d.zz] | join", "d.zz | tojson", "d.zz + 1", "d.zz.a", "d.zz | list",
     "1 in d.zz", "d.zz in [1]", "d.zz | int", "d.zz | string", "d.zz | map('upper')"],
)  # fmt: skip
def test_a_missing_value_is_an_error_elsewhere(source: str) -> None:
    with pytest.raises(TemplateError, match=r"no attribute 'zz'|No first item"):
        value(f"{{{{ {source} }}}}", d={}, l=[])
