"""Constant expressions are computed once, when the statement is planned.

Only what is the same whenever it is computed. An expression that fails and was not refused (`analysis/values/failing`)
stays as it is: it stands where not every row gets to, and is an error of the rows that do, as in Flink.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import Constant, Expr, NotNull, Operation, all_of, conjuncts, transform
from rmqio.sql.functions import registry
from rmqio.sql.planning.plan import Calc, Join, Relation
from rmqio.sql.user.definition import UserCall

_KEPT: Final = ("ARRAY", "MAP", "ROW", "MULTISET", "NULL")
"""Values of these types are made anew for each row."""


def folded(relation: Relation) -> Relation:
    """Returns the relation with its constant expressions computed."""
    relation = relation.with_inputs(tuple(map(folded, relation.inputs())))
    match relation:
        case Calc():
            return replace(
                relation,
                condition=all_of([each for each in map(fold, conjuncts(relation.condition)) if not _is_true(each)]),
                projections=tuple(map(fold, relation.projections)),
            )
        case Join() if relation.residual is not None:
            return replace(relation, residual=fold(relation.residual))
    return relation


def _is_true(condition: Expr) -> bool:
    return isinstance(condition, Constant) and condition.value is True


def fold(expression: Expr) -> Expr:
    """Returns the expression with its constant parts computed."""
    return transform(expression, _folded)


def _folded(expression: Expr) -> Expr:
    children = expression.children()
    if not children or isinstance(expression, NotNull) or expression.type.kind in _KEPT:
        return expression
    if not all(isinstance(each, Constant) and each.type.kind not in _KEPT for each in children):
        return expression
    if isinstance(expression, UserCall) and not expression.function.is_deterministic:
        return expression
    if isinstance(expression, Operation):
        function = registry.load().get(expression.name)
        if function is not None and not function.is_pure:
            return expression
    mapped = compiled(Fragment(FromRows(()), (Step(None, (expression,)),), ToRows()))([()])
    if mapped.failed or not mapped.values:
        return expression
    ((value,),) = mapped.values
    return Constant(expression.type.nullable(value is None), value)
