"""Draws boxes, arrows and text as SVG that is legible on light and on dark pages.

A picture in an `<img>` sees the colour scheme of the system, but not the one that a reader has chosen for the page.
Each picture therefore has an opaque background, and its own colours for both schemes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Final

_STYLE: Final = """
    text { font: 15px system-ui, -apple-system, "Segoe UI", Roboto, Arial, "DejaVu Sans", sans-serif; fill: #1f2933; }
    .title { font-weight: 600; font-size: 14.5px; }
    .small { font-size: 12.5px; fill: #52606d; }
    .code { font: 12.5px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #52606d; }
    .page { fill: #ffffff; stroke: #cbd2d9; }
    .frame { fill: none; stroke: #9aa5b1; stroke-dasharray: 5 4; }
    .arrow { stroke: #7b8794; stroke-width: 1.6; fill: none; }
    .head { fill: #7b8794; }
    .plain { fill: #f5f7fa; stroke: #9aa5b1; }
    .broker { fill: #ffefe6; stroke: #de6c2c; }
    .ours { fill: #e6f0fa; stroke: #2f73b8; }
    .yours { fill: #e9f6ec; stroke: #3f9b58; }
    .runner { fill: #f1ecfb; stroke: #7d5bbf; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb; }
      .small, .code { fill: #b3bcc7; }
      .page { fill: #1c2128; stroke: #3e4c59; }
      .frame { stroke: #616e7c; }
      .plain { fill: #262d36; stroke: #616e7c; }
      .broker { fill: #43291a; stroke: #de6c2c; }
      .ours { fill: #17324d; stroke: #5b9bd9; }
      .yours { fill: #1b3a26; stroke: #58b573; }
      .runner { fill: #312548; stroke: #a487e0; }
    }
"""


@dataclass
class Picture:
    """Collects shapes, and returns them as the text of an SVG file. Lengths are in pixels.

    `description` is read to those who do not see the picture.
    """

    width: int
    height: int
    title: str
    description: str
    _shapes: list[str] = field(default_factory=list)

    def box(self, kind: str, x: float, y: float, width: float, height: float, title: str, *lines: str) -> None:
        """A rounded box with a title and small lines, centred. A line in backticks is set as code."""
        self._shapes.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>')
        middle, top = x + width / 2, y + height / 2 - 8.5 * len(lines) + 5
        self.text(middle, top, title, "title")
        for at, line in enumerate(lines, 1):
            self.small(middle, top + 2 + 17 * at, line)

    def frame(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """A dashed frame around other shapes, with its title in the upper left corner."""
        self._shapes.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="9"/>')
        self.small(x + 12, y + 19, title, anchor="start")

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line through the points, with a head at the last one."""
        (before_x, before_y), (x, y) = points[-2:]
        across, down = (x > before_x) - (x < before_x), (y > before_y) - (y < before_y)
        back_x, back_y = x - 9 * across, y - 9 * down
        path = " ".join(f"{px},{py}" for px, py in (*points[:-1], (back_x, back_y)))
        self._shapes.append(f'<polyline class="arrow" points="{path}"/>')
        left, right = (back_x - 5 * down, back_y + 5 * across), (back_x + 5 * down, back_y - 5 * across)
        self._shapes.append(f'<path class="head" d="M{x} {y} L{left[0]} {left[1]} L{right[0]} {right[1]} Z"/>')

    def small(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """A small line. Text in backticks is set as code."""
        is_code = text.startswith("`")
        self.text(x, y, text.strip("`"), "code" if is_code else "small", anchor)

    def text(self, x: float, y: float, text: str, kind: str, anchor: str = "middle") -> None:
        """A line of text, whose baseline is at `y`."""
        self._shapes.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def __str__(self) -> str:
        page = f'<rect class="page" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="11"/>'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-labelledby="title description">'
        )
        title = f'<title id="title">{escape(self.title)}</title>'
        words = f'<desc id="description">{escape(self.description)}</desc>'
        return "\n  ".join([head, title, words, f"<style>{_STYLE}  </style>", page, *self._shapes]) + "\n</svg>\n"
