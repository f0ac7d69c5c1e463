"""Parsing of cases, which reads once what they have in common.

Most of a case's text is in other cases, too: its workload in cases of other variants, its kernels,
rounds and series in nearly all. So the text is split into the fields of a few models. A field's
text that was read before is not read again, and cases share its value, which nothing changes.
Samples go into arrays. A text that cannot be read so is left to pydantic, which also says why it
is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic import BaseModel, TypeAdapter, ValidationError

from bt_bench.results.files.invalid import repeated_key
from bt_bench.results.run.case import CaseResult, Measurement, RoundLog
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.rows import SampleRows

MOST_KNOWN: Final = 1 << 14
"""Most texts of a field that are kept; large runs have a few thousand workloads."""

_OWN = ("operation", "stopping")
"""Fields of a case whose value depends on the suite, or whose text no other case has."""

_SAMPLES: Final = b'"samples"'

_Validate = Callable[[bytes, dict[str, object]], Any]
_Read = Callable[["_Pass", Any], Any]


class _Unfit(Exception):  # noqa: N818  # never leaves this file
    """A text cannot be read field by field; it may be valid all the same."""


class KnownTexts:
    """The texts of fields that were read, with their values; it may serve all files of a run.

    Args:
        most: texts of a field that are kept.
    """

    def __init__(self, most: int = MOST_KNOWN) -> None:
        self._most = most
        self._of_field: dict[_Validate, dict[bytes, tuple[Any, int]]] = defaultdict(dict)

    def read(self, validate: _Validate, text: bytes) -> tuple[Any, int]:
        """Return the value of a text, and the number of colons in it.

        Args:
            validate: parses texts of the field, without a context.
            text: JSON.

        Raises:
            ValidationError: if it is not valid.
        """
        known = self._of_field[validate]
        found = known.get(text)
        if found is None:
            if len(known) >= self._most:
                known.clear()
            known[text] = found = _read(validate, text, {})
        return found


class CaseParser:
    """A parser of the cases of a result.

    Args:
        context: for validation, see `bt_bench.results.run.suites.context_of`.
        known: the texts that were read in other files of the run.
    """

    def __init__(self, context: Mapping[str, object], known: KnownTexts | None = None) -> None:
        self._context = {**context}
        self._known = known or KnownTexts()

    def parse(self, text: bytes) -> tuple[CaseResult, str | None]:
        """Return a case, and a message about a key that occurs twice in one object, if one does.

        Args:
            text: JSON in UTF-8.

        Raises:
            ValidationError: if it is not a valid case.
        """
        form = _case_form()
        try:
            this = _Pass(self._known, self._context)
            case: CaseResult = this.noun(form, form.decoder.decode(text))
            # Outside of strings, each key has a colon, and nothing else has one.
            if this.colons == text.count(b":"):
                return case, None
        except (msgspec.MsgspecError, ValidationError, _Unfit):
            pass
        # Strict, or else "1.5" would be read as a number.
        case = CaseResult.model_validate_json(text, strict=True, context=self._context)
        return case, repeated_key(text.decode())


@dataclass(frozen=True)
class _Form:
    """Hold how texts of a model are split, and by name a function that reads each field's part."""

    split: type[msgspec.Struct]
    decoder: msgspec.json.Decoder[Any]
    fields: tuple[tuple[str, _Read], ...]
    required: frozenset[str]
    blank: Noun


class _Pass:
    """The reading of one case; `colons` counts the colons of all parts that were read."""

    def __init__(self, known: KnownTexts, context: dict[str, object]) -> None:
        self.colons = 0
        self.known = known
        self.context = context

    def noun(self, form: _Form, parts: object) -> Any:
        values = {}
        for name, read in form.fields:
            part = getattr(parts, name)
            if part is not UNSET:
                self.colons += 1
                values[name] = read(self, part)
            elif name in form.required:
                raise _Unfit
        return form.blank.model_copy(update=values)


@cache
def _case_form() -> _Form:
    log = _form(RoundLog, {})
    frame = _validator(Measurement)
    samples = _samples_decoder()

    def read_log(this: _Pass, parts: object) -> Any:
        return None if parts is None else this.noun(log, parts)

    def read_series(this: _Pass, parts: list[Raw]) -> list[Measurement]:
        found = []
        for part in parts:
            text = bytes(part)
            # They come last in a file that bt-bench has written.
            head = text[: text.find(_SAMPLES)]
            rows = samples.decode(b"{" + text[len(head) :]).samples
            series, colons = this.known.read(frame, head + b'"samples":[]}')
            this.colons += colons
            found.append(series.model_copy(update={"samples": _times(rows)}))
        return found

    series = list[Raw], read_series
    split: dict[str, tuple[Any, _Read]] = {
        "rounds": (log.split | None, read_log),
        "measurements": series,
        "control": series,
    }
    return _form(CaseResult, split, _OWN)


def _samples_decoder() -> msgspec.json.Decoder[Any]:
    fields = [("samples", list[list[float]])]
    return msgspec.json.Decoder(msgspec.defstruct("End", fields, forbid_unknown_fields=True))


def _form(
    model: type[Noun], split: Mapping[str, tuple[Any, _Read]], own: Collection[str] = ()
) -> _Form:
    """Return how a model is read.

    Args:
        model: the model.
        split: fields that are split further: their types, and the functions that read them.
        own: fields whose texts are not kept.
    """
    typed, reads, blank = [], [], {}
    for name, field in model.model_fields.items():
        kind, read = split.get(name) or (Raw, _reader(field.rebuild_annotation(), name in own))
        typed.append((name, kind | UnsetType, UNSET))
        reads.append((name, read))
        blank[name] = field.get_default(call_default_factory=True)
    parts = msgspec.defstruct(model.__name__, typed, forbid_unknown_fields=True)
    return _Form(
        split=parts,
        decoder=msgspec.json.Decoder(parts),
        fields=tuple(reads),
        required=frozenset(name for name, each in model.model_fields.items() if each.is_required()),
        blank=model.model_construct(**blank),
    )


def _validator(annotation: Any) -> _Validate:
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    adapter = TypeAdapter[Any](annotation, config=None if is_model else Noun.model_config)
    return lambda text, context: adapter.validate_json(text, strict=True, context=context)


def _reader(annotation: Any, own: bool) -> _Read:
    """Return a function that reads the text of a field; `own`: without keeping it."""
    validate = _validator(annotation)

    def read(this: _Pass, part: Raw) -> Any:
        text = bytes(part)
        found = _read(validate, text, this.context) if own else this.known.read(validate, text)
        this.colons += found[1]
        return found[0]

    return read


def _read(validate: _Validate, text: bytes, context: dict[str, object]) -> tuple[Any, int]:
    colons = text.count(b":")
    if colons > 1 and repeated_key(text.decode()) is not None:
        raise _Unfit
    return validate(text, context), colons


def _times(rows: list[list[float]]) -> SampleRows:
    found = SampleRows.of(rows)
    if not (found.flat >= 0).all():
        raise _Unfit
    return found
