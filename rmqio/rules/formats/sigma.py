"""Rules in Sigma's YAML. pySigma parses them and runs pipelines; here its trees become values of `ir`.

pySigma is licensed under the LGPL. It is imported where rules are parsed, and is not needed by workers that get rules.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.rules.errors import Problem
from rmqio.rules.formats.base import Parsed, RuleText, line_with_caret
from rmqio.rules.ir import Rule, with_fields

_NEEDS: Final = "Sigma rules need the extra 'sigma': pip install 'rmqio[sigma]'"


def pipeline_of(text: str) -> Any:
    """Returns the pipeline of pySigma that a YAML text describes. Raises `LocalError`."""
    try:
        from sigma.exceptions import SigmaError
        from sigma.processing.pipeline import ProcessingPipeline
    except ImportError as error:
        raise LocalError(f"{_NEEDS} ({error})") from error
    try:
        return ProcessingPipeline.from_yaml(text)
    except SigmaError as error:
        raise LocalError(f"the pipeline of pySigma is not valid: {error}") from error
    except Exception as error:  # pySigma raises what Python raises on values that it does not expect
        reason = " ".join(str(error).split())
        raise LocalError(f"the pipeline of pySigma is not valid: {type(error).__name__}: {reason}") from error


def parse(texts: Sequence[RuleText], pipeline: Any = None) -> Parsed:
    """Returns the rules of Sigma's texts, after the pipeline. Raises `LocalError` without pySigma."""
    try:
        from rmqio.rules.formats import sigma_conditions, sigma_documents
    except ImportError as error:
        raise LocalError(f"{_NEEDS} ({error})") from error
    from rmqio.rules.formats import sigma_conditions

    problems: list[Problem] = []
    documents = [each for text in texts for each in sigma_documents.documents(text, problems)]
    filters = [each for each in documents if each.kind == "filter"]
    rules: list[Rule] = []
    for each in documents:
        if each.kind == "rule":
            found = sigma_conditions.rule_of(each, filters, pipeline)
            if isinstance(found, Rule):
                rules.append(found)
            else:
                problems.append(found)
    named = [(name, each.id) for each in documents if each.kind == "rule" for name in {each.id, each.name} if name]
    uses = Counter(name for name, _ in named)
    known = {name: rule_id for name, rule_id in named if uses[name] == 1}  # a name of two rules names neither
    correlations = []
    good = {each.id for each in rules}
    by_id = {each.id: each.rule for each in documents if each.kind == "rule"}
    for each in documents:
        if each.kind == "correlation":
            correlation = sigma_conditions.correlation_of(each, known, good)
            if pipeline is not None and not isinstance(correlation, Problem):
                correlation = with_fields(correlation, functools.partial(sigma_conditions.fields_of, by_id, pipeline))
            if isinstance(correlation, Problem):
                problems.append(correlation)
            else:
                correlations.append(correlation)
    return Parsed(tuple(rules), tuple(correlations), tuple(problems))


def refused(text: RuleText, line: int, rule_id: str, reason: str, column: int = 1, width: int = 1) -> Problem:
    """Returns the problem of a rule, with the line that shows it."""
    return Problem(text.name, line, rule_id, reason, line_with_caret(text.text, line, column, width))
