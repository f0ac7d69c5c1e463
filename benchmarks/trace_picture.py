"""Draws a step of a trace as an SVG, as Perfetto shows it: a row for each thread of each process.

    python benchmarks/trace_picture.py PROFILE/trace.json --out docs/pictures/trace.svg

For pages that cannot embed a trace. Only the first step of each variant is drawn: the
trace has more.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT, TOP = 1000, 190, 20, 52
ROW, BETWEEN = 20, 16
CHARACTER = 6.2
COLOURS = {
    "operation": "#c6dbef",
    "wait": "#eeeeee",
    "kernel": "#74c476",
    "copy": "#fdae6b",
    "memset": "#fdae6b",
}
OTHER = "#9e9ac8"  # calls of CUDA, and what their commands wait for
SLICE, META, FLOW_BEGIN, FLOW_END = "X", "M", "s", "f"

Event = dict[str, Any]


def main() -> None:
    """Draws what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, help="trace.json of a profile")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    args.out.write_text(picture(json.loads(args.trace.read_text(encoding="utf-8"))), "utf-8")


def picture(trace: dict[str, Any]) -> str:
    """The first step of all processes, on one axis of time."""
    processes = _processes(trace["traceEvents"])
    end = max(e["ts"] + e["dur"] for steps in processes.values() for e in steps if _is(e))
    begin = min(e["ts"] for steps in processes.values() for e in steps if _is(e))
    other = trace["otherData"]
    title = f"{other['operation']}/{other['case']} on {other['device']}, as traced"
    parts, y = [], float(TOP)
    for events in processes.values():
        drawn, height = _process(events, y, begin, end)
        parts += drawn
        y += height + BETWEEN
    height = y + 20
    axis = [
        f'<text x="{_x(at, begin, end):.1f}" y="{y + 6:.0f}" text-anchor="middle" '
        f'fill="#666">{at - begin:g}</text>'
        for at in _ticks(begin, end)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" height="{height:.0f}" font-family="sans-serif" font-size="11" '
            'role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
            '<text x="12" y="40" fill="#666">The first step of each variant in the trace; µs, with '
            "what the profiler adds.</text>",
            *parts,
            *axis,
            "</svg>\n",
        ]
    )


def _processes(events: Sequence[Event]) -> dict[int, list[Event]]:
    """The events of each process's first step, with the names of process and threads."""
    found: dict[int, list[Event]] = {}
    for event in events:
        found.setdefault(event["pid"], []).append(event)
    return {pid: list(_first_step(of)) for pid, of in found.items()}


def _first_step(events: Sequence[Event]) -> Iterator[Event]:
    steps = sorted(e["ts"] for e in events if _is(e) and e.get("cat") == "operation")
    hosts = [e for e in events if _is(e) and e.get("cat") == "wait"]
    until = min((e["ts"] + e["dur"] for e in hosts), default=float("inf"))
    last = max((e["ts"] + e["dur"] for e in events if _is(e) and e["ts"] < until), default=until)
    for event in events:
        if event["ph"] == META or steps[0] - 1 <= event.get("ts", 0.0) <= last:
            yield event


def _process(
    events: Sequence[Event], y: float, begin: float, end: float
) -> tuple[list[str], float]:
    name = next(e["args"]["name"] for e in events if e.get("name") == "process_name")
    threads = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    parts = [
        f'<text x="12" y="{y + 13:.0f}" font-weight="bold">{escape(name)}</text>',
        f'<line x1="12" x2="{WIDTH - RIGHT}" y1="{y - 6:.0f}" y2="{y - 6:.0f}" stroke="#ddd"/>',
    ]
    rows: dict[int, float] = {}
    for tid in sorted(threads):
        slices = sorted(
            (e for e in events if _is(e) and e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])
        )
        if not slices:
            continue
        rows[tid] = y
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 13:.0f}" text-anchor="end" fill="#666">'
            f"{escape(threads[tid])}</text>"
        )
        depth, open_ends = 0, list[float]()
        for event in slices:
            while open_ends and open_ends[-1] <= event["ts"] + 1e-6:
                open_ends.pop()
            parts.append(_slice(event, y + ROW * len(open_ends), begin, end))
            open_ends.append(event["ts"] + event["dur"])
            depth = max(depth, len(open_ends))
        y += ROW * depth + 4
    parts += _flows(events, rows, begin, end)
    return parts, y - (min(rows.values()) if rows else y)


def _slice(event: Event, y: float, begin: float, end: float) -> str:
    x, to = _x(event["ts"], begin, end), _x(event["ts"] + event["dur"], begin, end)
    width = max(0.8, to - x)
    room = int((width - 4) / CHARACTER)
    text = event["name"] if len(event["name"]) <= room else ""
    if not text and room > 5:
        text = f"{event['name'][: room - 1]}…"
    label = f'<text x="{x + 2:.1f}" y="{y + 13:.1f}">{escape(text)}</text>' if text else ""
    return (
        f"<g><title>{escape(event['name'])}: {event['dur']:.2f} µs</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW - 2}" '
        f'fill="{COLOURS.get(event.get("cat", ""), OTHER)}" stroke="#fff" stroke-width="0.4"/>'
        f"{label}</g>"
    )


def _flows(
    events: Sequence[Event], rows: dict[int, float], begin: float, end: float
) -> Iterator[str]:
    begins = {e["id"]: e for e in events if e["ph"] == FLOW_BEGIN}
    for event in events:
        start = begins.get(event.get("id")) if event["ph"] == FLOW_END else None
        if start is None or start["tid"] not in rows or event["tid"] not in rows:
            continue
        yield (
            f'<line x1="{_x(start["ts"], begin, end):.1f}" y1="{rows[start["tid"]] + ROW:.0f}" '
            f'x2="{_x(event["ts"], begin, end):.1f}" y2="{rows[event["tid"]]:.0f}" '
            'stroke="#d94801" stroke-width="0.7"/>'
        )


def _is(event: Event) -> bool:
    return bool(event["ph"] == SLICE)


def _x(at: float, begin: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at - begin) / (end - begin)


def _ticks(begin: float, end: float) -> Iterator[float]:
    length = end - begin
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if length / s <= 10)
    for number in range(int(length / step) + 1):
        yield begin + number * step


if __name__ == "__main__":
    main()
