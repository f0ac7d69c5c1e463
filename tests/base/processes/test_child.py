"""A process of bt-bench's own, from its start to its end."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """\
from bt_bench.base.processes import Child, answer

print("begins")
child = Child("probe", answer, 7)
print(child.next_message(60))
child.kill()
"""


def test_a_script_needs_no_guard_and_runs_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["begins", "7"], "")
