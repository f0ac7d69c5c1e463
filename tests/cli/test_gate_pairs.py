"""A head that slows its base within their process hides nothing: it is measured apart."""

from __future__ import annotations

import pytest
from support.commands import ONE_CHECK, run_apart
from support.repositories import repository, write
from support.staging import STAGING

CONFIG = STAGING.replace("rounds: 4", "rounds: 6")
BASE = '''\
"""A variant that takes a while."""
import time
from bt_kernels.variants.baseline import Variant as Baseline

class Variant(Baseline):
    def append_many(self, *arguments):
        time.sleep(0.02)
        super().append_many(*arguments)
'''
# Each takes three times as long as the base, and would have the base take as long.
WAYS = {
    "patches the base": """
import gc, time
def slowed(self, *arguments):
    time.sleep(0.06)
    super(type(self), self).append_many(*arguments)
class Sly(Variant):
    def snapshot(self, *arguments):
        for each in gc.get_objects():
            if isinstance(each, type) and each.__name__ == "Variant" and each not in Sly.__mro__:
                if each.__module__.startswith("bt_bench_variants_"):
                    each.append_many = slowed
        return super().snapshot(*arguments)
    append_many = slowed
Variant = Sly
""",
    "patches sleep": """
import time
asleep = time.sleep
time.sleep = lambda seconds: asleep(3 * seconds)
""",
    "starts a thread": """
import threading, time
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
class Sly(Variant):
    def append_many(self, *arguments):
        time.sleep(0.06)
        super().append_many(*arguments)
Variant = Sly
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_head_that_slows_its_base_is_found(tmp_path, way):
    top = repository(
        tmp_path / "repo", {"my.yaml": CONFIG, "mine/one.py": BASE, ".gitignore": "reports/\n"}
    )
    write(top, {"mine/one.py": BASE + WAYS[way]})
    outcome = run_apart(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine", "--json"),
        *("--device", "cpu", "--rounds", "4", "--max-rounds", "4", "--out", "gated"),
        *("--metric", "stage_us"),
        cwd=top,
        prologue=ONE_CHECK,
        timeout=600,
    )
    if way != "patches the base":  # it is seen before anything is timed
        assert outcome.code == 2
        assert "a variant must leave the process as it is" in outcome.err
        return
    (judgement,) = outcome.json()["judgements"]
    assert judgement["base_value"] < 40_000 < judgement["other_value"]
    assert judgement["verdict"] in ("SLOWER", "INCONCLUSIVE")
