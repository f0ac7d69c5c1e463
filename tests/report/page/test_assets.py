"""Tests of the files that pages are made from."""

import gzip
import hashlib
import re
from importlib.resources import files

ASSETS = files("bt_bench.report.page") / "assets"


def test_the_bundle_is_the_one_that_its_note_describes() -> None:
    packed = (ASSETS / "vega.js.gz").read_bytes()

    (digest,) = re.findall(r"SHA-256: `(\w+)`", (ASSETS / "vega.md").read_text("utf-8"))
    assert hashlib.sha256(packed).hexdigest() == digest


def test_the_bundle_asks_for_no_other_file() -> None:
    code = gzip.decompress((ASSETS / "vega.js.gz").read_bytes()).decode()

    assert "sourceMappingURL" not in code
    assert "</script" not in code.lower()
