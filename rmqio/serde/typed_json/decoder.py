"""Decodes JSON bodies to a type: with msgspec if it is installed (`pip install 'rmqio[json]'`), or without.

Both have the same results, and the errors are always those of `exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rmqio.serde.typed_json.exact import ExactDecoder
from rmqio.serde.typed_json.plan import Plan

if TYPE_CHECKING:
    from rmqio.serde.typed_json.fast import MsgspecDecoder


class TypedDecoder:
    """Decodes bodies to the type of a plan."""

    __slots__ = ("exact", "fast", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        self.exact: Final = ExactDecoder(plan)
        self.fast: Final = _fast(plan)
        """None: msgspec is not installed, or the type contains itself."""

    def __call__(self, body: bytes) -> Any:
        """Raises `NotJson` if the body does not fit."""
        fast = self.fast
        if fast is not None and fast.is_usual(body):
            try:
                return fast.decode(body)
            except Exception:  # noqa: BLE001 - whatever it is, the next line says it; msgspec quotes the body
                pass
        return self.exact(body)

    def all(self, bodies: Sequence[bytes]) -> list[Any] | None:
        """The values of all bodies; None if one of them may not fit."""
        if self.fast is None or not self.fast.are_usual(bodies):
            return None
        try:
            return self.fast.decode_all(bodies)
        except Exception:  # noqa: BLE001 - as above
            return None


def _fast(plan: Plan) -> MsgspecDecoder | None:
    try:
        from rmqio.serde.typed_json.fast import MsgspecDecoder
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        return None
    return None if plan.contains_itself() else MsgspecDecoder(plan)
