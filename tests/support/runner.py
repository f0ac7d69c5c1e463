"""How GitHub's runner reads the lines of a log, to test that only commands that are meant are."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = {"error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "set-output"}
NAMES |= {"stop-commands", "echo", "save-state", "add-path", "set-env", "add-matcher"}


@dataclass(frozen=True)
class Command:
    """What the runner would do."""

    name: str
    properties: dict[str, str]
    data: str


def commands_of(text: str) -> list[Command]:
    """The commands in a log, of both of the forms that the runner knows."""
    # .NET ends a line at these only.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [command for line in lines for command in [_new(line) or _old(line)] if command]


def _new(line: str) -> Command | None:
    line = line.lstrip()
    if not line.startswith("::"):
        return None
    info, separator, data = line[2:].partition("::")
    return _parsed(info, data, ",") if separator else None


def _old(line: str) -> Command | None:
    info, separator, data = line.partition("##[")[2].partition("]")
    return _parsed(info, data, ";") if separator else None


def _parsed(info: str, data: str, between: str) -> Command | None:
    name, _, properties = info.partition(" ")
    if name not in NAMES:
        return None
    pairs = [pair.split("=", 1) for pair in properties.strip().split(between) if "=" in pair]
    return Command(name, {key: _unescaped(value) for key, value in pairs}, _unescaped(data))


def _unescaped(text: str) -> str:
    for escape, character in {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}.items():
        text = text.replace(escape, character)
    return text.replace("%25", "%")
