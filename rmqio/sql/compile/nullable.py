"""Fragments of statements in which a value that fails is NULL: there, NULL can be where types are NOT NULL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmqio.sql.compile.description import Fragment, Generate, ToGroups, WindowStep
from rmqio.sql.compile.look_ups import LookUp
from rmqio.sql.compile.steps import Step
from rmqio.sql.expressions import Constant, Expr, transform
from rmqio.sql.planning.plan import Field


def nullable(given: Fragment) -> Fragment:
    """Returns the fragment for rows that have NULL where their types are NOT NULL, if its statement has such rows."""
    if not given.statement.has_nulls:
        return given
    target = given.target
    if isinstance(target, ToGroups):
        target = replace(target, fields=_nullable_fields(target.fields))
    return replace(given, steps=tuple(map(_nullable_step, given.steps)), target=target)


def _nullable_step(step: Step) -> Step:
    condition = None if step.condition is None else transform(step.condition, _nullable)
    projections = tuple(transform(each, _nullable) for each in step.projections)
    found = replace(step, condition=condition, projections=projections)
    if isinstance(found, WindowStep):
        return replace(found, fields=_nullable_fields(found.fields))
    if isinstance(found, Generate):
        return replace(found, rows=transform(found.rows, _nullable))
    if isinstance(found, LookUp):
        keys = tuple(transform(each, _nullable) for each in found.keys)
        residual = None if found.residual is None else transform(found.residual, _nullable)
        return replace(found, fields=_nullable_fields(found.fields), keys=keys, residual=residual)
    return found


def _nullable(expression: Expr) -> Expr:
    return expression if isinstance(expression, Constant) else replace(expression, type=expression.type.nullable())


def _nullable_fields(fields: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(each._replace(type=each.type.nullable()) for each in fields)
