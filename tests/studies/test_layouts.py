"""Stand-ins for what vLLM's planning code imports; the plans are in `workloads/layouts`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "studies/layouts"
REAL = """
from __future__ import annotations
import einops
from transformers import SomeConfig
from vllm.absent import Base, constant, decorate, register
from vllm.absent.deeper import helper
from vllm.utils import double

@register("name")
@decorate
def plan(config: SomeConfig | None) -> int:
    with helper(config):
        return double(21)

class Layer(Base):
    pass

assert not constant
assert list(helper()) == []
"""


def run(code, root):
    text = f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nfrom pathlib import Path\n{code}"
    return subprocess.run(
        [sys.executable, "-c", text, str(root)], capture_output=True, text=True, check=False
    )


def test_real_modules_run_among_stand_ins(tmp_path):
    (tmp_path / "vllm/core").mkdir(parents=True)
    (tmp_path / "vllm/core/planning.py").write_text(REAL)
    (tmp_path / "vllm/utils.py").write_text("def double(number):\n    return 2 * number\n")
    ended = run(
        "from stand_ins import StandIn, install\n"
        "install(Path(sys.argv[1]), ['vllm.core.planning', 'vllm.utils'])\n"
        "from vllm.core.planning import Layer, constant, plan\n"
        "assert plan(None) == 42 and Layer() is not None and isinstance(constant, StandIn)\n",
        tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_wheel_of_another_release_is_refused(tmp_path):
    ended = run(
        "from stand_ins import install\ninstall(Path(sys.argv[1]), ['vllm.planning'])\n", tmp_path
    )
    assert ended.returncode == 1
    assert "vllm/planning.py is missing; expected an unpacked wheel of vLLM 0.33.0" in ended.stderr


def test_a_field_that_no_code_of_vllm_computed_is_refused():
    ended = run(
        "from dataclasses import dataclass\n"
        "import engine\n"
        "@dataclass\n"
        "class Spec:\n"
        "    block_size: int\n"
        "    dtypes: tuple\n"
        "engine._refuse_stand_ins('layer', Spec(16, (1, 2)))\n"
        "engine._refuse_stand_ins('layer', Spec(16, (1, engine.StandIn())))\n",
        FOLDER,
    )
    assert "TypeError: dtypes of layer is a stand-in; make its module real" in ended.stderr
