"""EXPLAIN of joins: their kind, keys, bound and state."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.constant_text import duration
from rmqio.sql.expressions import conjuncts
from rmqio.sql.planning.delays import bucket_us, kept_us
from rmqio.sql.planning.plan import SAME_WINDOW, Calc, Interval, Join, Relation, SameWindow, Window
from rmqio.sql.text import text_of


def column_names(join: Join) -> list[str]:
    """Returns the columns of a join as text, with the table's name where another column has the same name."""
    names = [each.name for each in join.fields]
    computed = [*_key_texts(join.left), *_key_texts(join.right)]
    return [
        text or (f"{each.table}.{each.name}" if each.table and names.count(each.name) > 1 else each.name)
        for each, text in zip(join.fields, computed, strict=True)
    ]


def _key_texts(side: Relation) -> list[str]:
    """The texts of keys that are computed, by column; empty: the column has a name."""
    if not isinstance(side, Calc):
        return [""] * len(side.fields)
    names = [each.name for each in side.input.fields]
    return [
        text_of(expression, names) if each.name.startswith("KEY$") else ""
        for each, expression in zip(side.fields, side.projections, strict=True)
    ]


def window_line(window: Window, names: Sequence[str]) -> str:
    """Returns `hop window of 1 min every 30 s by ts`."""
    if window.kind == SAME_WINDOW:
        return "the window that the rows are in, until the watermark passes its end"
    return f"{_window(window)} by {'the time of the worker' if window.is_processing else names[window.time]}"


def _window(window: Window) -> str:
    slide = f" every {duration(window.slide_us // 1000)}" if window.slide_us != window.size_us else ""
    zone = f" in {window.local_zone}" if window.local_zone else ""
    return f"{window.kind.lower()} window of {duration(window.size_us // 1000)}{slide}{zone}"


def join_lines(join: Join) -> list[str]:
    """Returns what a join does, in lines."""
    names = column_names(join)
    width = len(join.left.fields)
    keys = " and ".join(f"{names[one]} = {names[width + other]}" for one, other in join.keys)
    kind = {Interval: "interval join", SameWindow: "window join"}.get(type(join.bound), "join")
    lines = [f"{join.kind.capitalize()} {kind} on {keys}, append-only" if keys else "Cross join, append-only"]
    if join.residual is not None:
        lines += [f"where {text_of(each, names)}" for each in conjuncts(join.residual)]
    if not keys:
        if not join.ttl_ms:
            return [*lines, "sends the right side to all workers, and needs inputs that end"]
        kept = f"keeps each row for {duration(join.ttl_ms)}, or forever if its input ends"
        return [*lines, "sends the right side to all workers", kept]
    lines.append(f"shuffles both sides by {', '.join(dict.fromkeys(names[one] for one, _ in join.keys))}")
    match join.bound:
        case Interval() as bound:
            lines += _interval(join, bound, names[bound.left_time], names[width + bound.right_time])
        case SameWindow(window):
            lines.append(f"joins the rows of a {_window(window)} when the watermark passes its end, and forgets them")
        case _ if join.kind != "INNER":
            lines.append("keeps all rows, and gives those without a partner when both inputs end: they must end")
        case _:
            kept = f"keeps each row for {duration(join.ttl_ms)}, or forever if its input ends"
            lines.append(kept if join.ttl_ms else "keeps all rows until both inputs end: they must end")
    return lines


def _interval(join: Join, bound: Interval, left: str, right: str) -> list[str]:
    size, kept = bucket_us(join.kind, bound), kept_us(join.kind, bound) - 1000
    lines = [f"{right} is {_distance(bound, left)}"]
    lines.append(
        f"keeps rows for up to {duration((size + kept) // 1000)} of event time, in pieces of {duration(size // 1000)}"
    )
    if join.kind != "INNER":
        lines.append("emits a row without a partner when its piece is dropped")
    return lines


def _distance(bound: Interval, left: str) -> str:
    if bound.lower_us == bound.upper_us == 0:
        return left
    ends = [bound.lower_us, bound.upper_us]
    if ends[0] == ends[1]:
        return f"{_after(ends[0])} {left}"
    return f"from {_after(ends[0])} to {_after(ends[1])} {left}"


def _after(micros: int) -> str:
    whole = round(micros, -3)
    than = "" if whole == micros else "less than " if abs(micros) < abs(whole) else "more than "
    return f"{than}{duration(abs(whole) // 1000)} {'before' if micros < 0 else 'after'}"
