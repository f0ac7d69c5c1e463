"""Helpers independent of measuring: files, texts, the document of a report, git."""

from __future__ import annotations

from bt_bench.base.atomic import (
    TEMPORARY_SUFFIX,
    descriptor_of,
    is_null_device,
    is_open_as,
    is_stream,
    target_of,
    writing,
)
from bt_bench.base.claims import Claim, claims_folder
from bt_bench.base.collection import no_collection
from bt_bench.base.document import (
    ABSENT,
    Axis,
    Block,
    Bullets,
    Cell,
    Document,
    Heading,
    Interval,
    Section,
    SectionOf,
    Strip,
    Table,
    Tick,
    Tone,
    inert,
    numbered_notes,
    one_line,
)
from bt_bench.base.files import (
    MOST_BYTES,
    STDIN,
    compact_json,
    expanded,
    like,
    limited,
    name_of,
    naming,
    packed_or_not,
    read_text,
    replacing,
    unpacked_path,
    write_text,
)
from bt_bench.base.git import run_git, without_another_git
from bt_bench.base.own_files import is_at, lock, open_own, refusal_of
from bt_bench.base.packing import HEAD_BYTES, packing_of, refuse_stand_in, unpacking
from bt_bench.base.redacting import Redactor, redactor_here
from bt_bench.base.scratch import scratch_folder
from bt_bench.base.selecting import joined, names_given, select_names
from bt_bench.base.units import (
    format_bytes,
    format_factors,
    format_number,
    format_percent,
    format_share,
    unit_text,
)
