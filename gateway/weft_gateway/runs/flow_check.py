"""Checks and explains workflows from HTTP, in a worker process."""

from __future__ import annotations

from typing import Any

from weft_run.io.job import models_of
from weft_run.language.check import WorkflowError
from weft_run.language.graph import Llm, Workflow, bodies
from weft_run.language.spec import load
from weft_run.plan.rewrite import Rewritten, rewrite

from weft_gateway.runs.flow_rules import MOST_OPERATORS, Rules, refusals
from weft_gateway.runs.flow_wire import Check, Checked, Wrong


def check(asked: Check) -> Checked | Wrong:
    """Check a workflow, and explain it."""
    try:
        workflow = load_allowed(asked.text, asked.file, asked.rules)
    except WorkflowError as error:
        return Wrong("invalid_workflow", str(error))
    done = rewrite(workflow)
    calls = sum(isinstance(body, Llm) for _, body in bodies(done.workflow.operators))
    models = models_of(done.workflow)
    named = [(name, one.operator, one.line) for name, one in models.items()]
    inputs = {name: str(kind) for name, kind in workflow.inputs.items()}
    return Checked(_plan(workflow, done), inputs, named, calls, "" in models)


def load_allowed(text: str, file: str, rules: Rules) -> Workflow:
    """Compile a workflow from HTTP. Raises WorkflowError."""
    workflow = load(text, file, MOST_OPERATORS)
    wrong = refusals(workflow, rules, file)
    if wrong:
        raise WorkflowError("\n".join(wrong))
    return workflow


def _plan(workflow: Workflow, done: Rewritten) -> dict[str, Any]:
    """Return what runs, after rewrites."""
    return {
        "name": workflow.name,
        "model": workflow.model or None,
        "inputs": {name: str(kind) for name, kind in workflow.inputs.items()},
        "outputs": dict(done.workflow.outputs),
        "operators": [
            {
                "name": one.name,
                "kind": type(one.body).__name__.lower(),
                "for_each": one.for_each,
                "reads": list(one.inputs),
            }
            for one in done.workflow.operators
        ],
        "rewrites": [
            {
                "kind": one.kind.value,
                "operator": one.operator,
                "reason": one.reason,
                "into": one.into or None,
            }
            for one in done.rewrites
        ],
    }
