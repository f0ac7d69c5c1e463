"""Files of the user are found from any folder."""

from __future__ import annotations

import json

from support.commands import TINY, run

from bt_bench.results.reading import read_run

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,3\n"
CONFIG = f"""\
{TINY.partition("cases:")[0].replace("fused", "mine")}
kernels: kernels
cases: [{{name: a, workload: trace, trace: load.csv, window: {{steps: 2}}}}]
"""


def test_a_run_is_resumed_from_elsewhere(tmp_path, monkeypatch):
    folder, out = tmp_path / "bench", tmp_path / "run"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "mine.py").write_text("from bt_kernels.variants.fused import Variant\n")
    (folder / "load.csv").write_text(TRACE)
    (folder / "tiny.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    outcome = run("sweep", "bench/tiny.yaml", "--out", out)
    assert outcome.code == 0, outcome.err

    cut = json.loads((out / "mine.json").read_text())
    cut |= {"cases": cut["cases"][:1], "complete": False}
    (out / "mine.json").write_text(json.dumps(cut))
    monkeypatch.chdir("/")
    outcome = run("sweep", folder / "tiny.yaml", "--resume", out)
    assert outcome.code == 0, outcome.err
    assert all(result.complete and len(result.cases) == 2 for result in read_run(out))
