"""The columns of a trace that hold its requests, in public formats and others."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from bt_bench.results import Noun

TimeUnit = Literal["date", "s", "ms", "us", "ns"]


class Places(NamedTuple):
    """The columns of a CSV, or the keys of a JSONL, and the unit of times."""

    arrival: str
    prompt: str
    output: str
    time: TimeUnit


PRESETS = {
    "azure": Places("TIMESTAMP", "ContextTokens", "GeneratedTokens", "date"),
    "mooncake": Places("timestamp", "input_length", "output_length", "ms"),
    "burstgpt": Places("Timestamp", "Request tokens", "Response tokens", "s"),
}


class Columns(Noun):
    """The columns of a trace: a public format's, unless given here."""

    preset: Literal["azure", "mooncake", "burstgpt"] = Field(
        default="azure", description="the columns of a public format"
    )
    arrival: str | None = Field(default=None, min_length=1, description="time of arrival")
    prompt: str | None = Field(default=None, min_length=1, description="tokens of the prompt")
    output: str | None = Field(default=None, min_length=1, description="generated tokens")
    time: TimeUnit | None = Field(
        default=None, description="dates, or numbers of seconds, milli-, micro- or nanoseconds"
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
