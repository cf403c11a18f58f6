"""Templates: parts, names, rendering, and the limits of the sandbox."""

from __future__ import annotations

import pytest
from weft_run.language.templates import (
    Constant,
    Placeholder,
    Template,
    TemplateError,
    evaluated,
    leaves,
)

SCOPE = {"q": "Q", "facts": ["a", "b"], "row": {"x": 3}, "none": None, "yes": True}


def test_a_template_has_constants_and_placeholders() -> None:
    template = Template.parse("You: {{ q }}{% for f in facts %}\n- {{ f }}{% endfor %}!")
    assert template.parts == (
        Constant("You: "),
        Placeholder("{{ q }}", ("q",)),
        Placeholder("{% for f in facts %}\n- {{ f }}{% endfor %}", ("facts",)),
        Constant("!"),
    )
    assert template.names == ("facts", "q")
    assert template.text(SCOPE) == "You: Q\n- a\n- b!"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a {#- no -#} b", "ab"),
        ("{% raw %}{{ q }}{% endraw %}", "{{ q }}"),
        ("a  {%- if yes %} b {% endif -%}  c\n", "a b c\n"),
        ("{% if yes %}{% for f in facts %}{{ loop.index }}{% endfor %}{% endif %}", "12"),
        ("{{ facts }}, {{ row }}, {{ none }}, {{ yes }}", '["a", "b"], {"x": 3}, , true'),
        ("{{ row | tojson }}", '{"x": 3}'),
    ],
)
def test_rendering(source: str, text: str) -> None:
    assert Template.parse(source).text(SCOPE) == text


def test_a_single_expression_has_a_value_of_any_type() -> None:
    assert Template.parse("{{ row.x - 1 }}").value(SCOPE) == 2
    assert Template.parse("{{ facts }}").value(SCOPE) == ["a", "b"]
    assert Template.parse(" {{ row.x }}").value(SCOPE) == " 3"


def test_bindings_read_other_names() -> None:
    template = Template.parse("{{ a }}{{ b }}", {"a": ("q", "facts"), "b": "q", "c": "q"})
    assert template.names == ("facts", "q")
    assert template.text(SCOPE) == '["Q", ["a", "b"]]Q'
    renamed = template.renamed({"q": "yes"})
    assert renamed.text(SCOPE) == '[true, ["a", "b"]]true'
    assert renamed.names == ("facts", "yes")
    assert template.renamed({}) == template


@pytest.mark.parametrize(
    "source",
    [
        "{{ q",
        "{% set a = 1 %}",
        "{% include 'x' %}",
        "{% macro m() %}{% endmacro %}",
        "{{ q|random }}",
        r"{{ '\ud800' }}",
        "{{ q }} \ud800",
    ],
)
def test_invalid_templates_are_refused(source: str) -> None:
    with pytest.raises(TemplateError):
        Template.parse(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ missing }}",
        "{{ row.missing }}",
        "{{ q.__class__ }}",
        "{{ facts.append(1) }}",
        "{{ q.translate({81: 55296}) }}",
        "{{ q.encode() }}",
    ],
)
def test_rendering_fails_with_a_reason(source: str) -> None:
    template = Template.parse("Text: " + source)
    with pytest.raises(TemplateError, match=r"\w"):
        template.text(SCOPE)
    with pytest.raises(TemplateError, match=r"\w"):
        Template.parse(source).value(SCOPE)


def test_the_line_of_an_error() -> None:
    with pytest.raises(TemplateError) as found:
        Template.parse("one\n{{ q }}\n{{ q + }}")
    assert found.value.line == 3


def test_trees_have_templates_as_leaves() -> None:
    q, x, facts = map(Template.parse, ("{{ q }}", "x", "{{ facts }}"))
    tree = {"a": (q, x, 1), "b": {"c": facts}}
    assert list(leaves(tree, Template)) == [q, x, facts]
    assert evaluated(tree, SCOPE) == {"a": ["Q", "x", 1], "b": {"c": ["a", "b"]}}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (f"{{{{ {'(' * 5000}q{')' * 5000} }}}}", "nested too deeply"),
        ("{% if q %}" * 3000 + "{% endif %}" * 3000, "nested too deeply"),
        ("{% for f in q %}" * 30 + "{% endfor %}" * 30, "nested too deeply"),
        (f"{{{{ {'not ' * 20000}q }}}}", "nested too deeply"),
        (f"{{{{ q{'.a' * 20000} }}}}", "nested too deeply"),
        (f"{{{{ {'q + ' * 150}q }}}}", "nested too deeply"),
        ("{{ q.replace(a=1, a=2) }}", "keyword argument repeated: a"),
        (f"{{{{ {'1' * 5000} }}}}", "4300 digits"),
    ],
)
def test_templates_that_python_cannot_compile(source: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        Template.parse(source)
    with pytest.raises(TemplateError, match=reason):
        Template.parse(f"{{% if q %}}{source}{{% endif %}}")


def test_usual_depths_compile() -> None:
    for source in (f"{{{{ {'(' * 50}q{')' * 50} }}}}", f"{{{{ {'q ~ ' * 500}q }}}}"):
        template = Template.parse(source)
        assert template.canonical()
        assert template.text(SCOPE).startswith("Q")
