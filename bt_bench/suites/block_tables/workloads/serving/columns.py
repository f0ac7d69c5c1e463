"""The columns of a trace that hold its requests, in public formats and others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from pydantic import Field

from bt_bench.results import Noun

TimeUnit = Literal["date", "s", "ms", "us", "ns"]


class Places(NamedTuple):
    """The columns of a CSV, or the keys of a JSONL, and the unit of times.

    A trace need not have the last three. `drop_failed`: requests of 0 tokens are left out.
    """

    arrival: str
    prompt: str
    output: str
    time: TimeUnit
    drop_failed: bool = False
    hash_tokens: int = 512
    hashes: str = "hash_ids"
    session: str = "session_id"
    delay: str = "delay"


PRESETS = {
    "azure": Places("TIMESTAMP", "ContextTokens", "GeneratedTokens", "date"),
    "bailian": Places("timestamp", "input_length", "output_length", "s", hash_tokens=16),
    "burstgpt": Places("Timestamp", "Request tokens", "Response tokens", "s", drop_failed=True),
    "mooncake": Places("timestamp", "input_length", "output_length", "ms"),
}

BAILIAN_KEY = "chat_id"
"""A key of Bailian's traces, whose other keys are Mooncake's, in another unit of time."""


def format_of(names: Collection[str]) -> str | None:
    """Return the public format with these columns or keys; `None`: none that is known."""
    for preset, places in PRESETS.items():
        may_be = preset != "bailian" or BAILIAN_KEY in names
        if may_be and all(name in names for name in places[:3]):
            return preset
    return None


class Columns(Noun):
    """The columns of a trace: a public format's, unless given here."""

    preset: Literal["azure", "bailian", "burstgpt", "mooncake"] = Field(
        default="azure", description="the columns of a public format"
    )
    arrival: str | None = Field(default=None, min_length=1, description="time of arrival")
    prompt: str | None = Field(default=None, min_length=1, description="tokens of the prompt")
    output: str | None = Field(default=None, min_length=1, description="generated tokens")
    time: TimeUnit | None = Field(
        default=None, description="dates, or numbers of seconds, milli-, micro- or nanoseconds"
    )
    drop_failed: bool | None = Field(
        default=None, description="leave out requests of 0 tokens, and count them"
    )
    hashes: str | None = Field(
        default=None, min_length=1, description="hashes of the blocks of the prompt"
    )
    hash_tokens: int | None = Field(default=None, ge=1, description="tokens of a hashed block")
    session: str | None = Field(default=None, min_length=1, description="session of the request")
    delay: str | None = Field(
        default=None,
        min_length=1,
        description="time from the end of the session's last request to this one",
    )

    @property
    def name(self) -> str:
        """Return the name of these columns in the names of cases."""
        return self.preset

    def places(self) -> Places:
        """Return the columns that are read."""
        given = {key: getattr(self, key) for key in Places._fields}
        changed = {key: value for key, value in given.items() if value is not None}
        return PRESETS[self.preset]._replace(**changed)

    def mistaken_for(self, names: Collection[str]) -> str | None:
        """Return the preset with equal columns and another unit, if its traces look like this.

        Args:
            names: the columns, or the keys of a line.
        """
        if self.time is not None or self.preset not in ("bailian", "mooncake"):
            return None
        found = format_of(names)
        same = found is not None and self.places()[:3] == PRESETS[found][:3]
        return found if same and found != self.preset else None


class Part(Noun):
    """The part of a trace that is served: all of it by default."""

    begin: str | float | None = Field(
        default=None, description="leave out requests that arrive before this time of the file"
    )
    end: str | float | None = Field(
        default=None,
        description="leave out requests that arrive from this time of the file on",
    )
    requests: int | None = Field(
        default=None, ge=1, description="read no more requests than this, in the file's order"
    )

    @property
    def name(self) -> str:
        """Return the name of the part in the names of cases."""
        given = (self.begin, self.end, self.requests)
        return "-".join("all" if value is None else str(value) for value in given)
