"""Figures over sizes as an SVG picture: both axes logarithmic, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 150, 46, 58
# Grey is legible on white and on black alike, and these two hues are told apart by most people.
_INK = "#808080"
_COLOURS = ("#2f81f7", "#db6d28", "#8957e5", "#3fb950")
_FONT = "font-family='system-ui, sans-serif' font-size='13'"
_NAME_HEIGHT = 17
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SIZES = ((1_000_000, "M"), (1_000, "k"))


@dataclass(frozen=True, slots=True)
class Line:
    """`points` are sizes and seconds."""

    name: str
    points: tuple[tuple[float, float], ...]


def draw(title: str, lines: Sequence[Line]) -> str:
    """One SVG document."""
    plane = _Plane.around(lines)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' {_FONT} fill='{_INK}'>",
        f"<title>{escape(title)}</title>",
        f"<text x='{_LEFT}' y='24' font-size='15'>{escape(title)}</text>",
        *plane.grid(),
        f"<text x='{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}' y='{_HEIGHT - 14}' text-anchor='middle'>"
        "memories in the space</text>",
        f"<text transform='translate(18 {(_TOP + _HEIGHT - _BOTTOM) / 2:.0f}) rotate(-90)' text-anchor='middle'>"
        "time of one recall, p50</text>",
    ]
    for line, colour, height in zip(lines, _COLOURS, plane.name_heights(lines), strict=False):
        parts += plane.line(line, colour, height)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Plane:
    """Decades, as exponents of ten: from where to where each axis reaches."""

    sizes: tuple[float, float]
    seconds: tuple[int, int]

    @classmethod
    def around(cls, lines: Sequence[Line]) -> _Plane:
        sizes = [math.log10(size) for line in lines for size, _ in line.points]
        seconds = [math.log10(value) for line in lines for _, value in line.points]
        lowest, highest = math.floor(min(seconds)), math.ceil(max(seconds))
        return cls((min(sizes), max(max(sizes), min(sizes) + 1e-9)), (lowest, max(highest, lowest + 1)))

    def grid(self) -> list[str]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        parts = [f"<g stroke='{_INK}' stroke-opacity='0.35'>"]
        labels: list[str] = []
        for exponent in range(self.seconds[0], self.seconds[1] + 1):
            y = self._y(10.0**exponent)
            parts.append(f"<line x1='{_LEFT}' y1='{y:.1f}' x2='{right}' y2='{y:.1f}'/>")
            labels.append(f"<text x='{_LEFT - 8}' y='{y + 4:.1f}' text-anchor='end'>{_time(10.0**exponent)}</text>")
        for exponent in range(math.ceil(self.sizes[0] - 1e-6), math.floor(self.sizes[1] + 1e-6) + 1):
            x = self._x(10.0**exponent)
            parts.append(f"<line x1='{x:.1f}' y1='{_TOP}' x2='{x:.1f}' y2='{bottom}'/>")
            labels.append(f"<text x='{x:.1f}' y='{bottom + 20}' text-anchor='middle'>{_count(10.0**exponent)}</text>")
        return [*parts, "</g>", *labels]

    def name_heights(self, lines: Sequence[Line]) -> list[float]:
        """Beside each line's end, and never over one another."""
        heights = [self._y(line.points[-1][1]) for line in lines]
        above = -math.inf
        for at in sorted(range(len(heights)), key=heights.__getitem__):
            heights[at] = above = max(heights[at], above + _NAME_HEIGHT)
        return heights

    def line(self, line: Line, colour: str, name_height: float) -> list[str]:
        places = [(self._x(size), self._y(seconds)) for size, seconds in line.points]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        return [
            f"<polyline points='{drawn}' fill='none' stroke='{colour}' stroke-width='2.5'/>",
            *(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{colour}'/>" for x, y in places),
            f"<text x='{places[-1][0] + 10:.1f}' y='{name_height + 4:.1f}' fill='{colour}'>{escape(line.name)}</text>",
        ]

    def _x(self, size: float) -> float:
        low, high = self.sizes
        return _LEFT + (math.log10(size) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def _y(self, seconds: float) -> float:
        low, high = self.seconds
        return _HEIGHT - _BOTTOM - (math.log10(seconds) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _time(seconds: float) -> str:
    worth, unit = next((step for step in _UNITS if seconds >= step[0] * 0.999), _UNITS[-1])
    return f"{seconds / worth:g} {unit}"


def _count(size: float) -> str:
    worth, unit = next((step for step in _SIZES if size >= step[0]), (1, ""))
    return f"{size / worth:g}{unit}"
