"""The documentation is true: its commands run, its examples work, its links lead somewhere.

In a page, a `console` block is a session in an empty folder, continued by the next block:

- A line `$ COMMAND` is run, and must end with exit code 0 unless `$ echo $?` asks for another.
- The lines after it are its output, with blanks and line breaks all alike. `…` in a line stands for
  any text, and as a line of its own for any number of whole lines, or none.
- `<!-- needs a GPU -->` on the line before a block keeps it from being run.
- `<!-- file: NAME -->` before a block of another language writes that file.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import tomllib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from support.commands import run, without_worker

from bt_bench.config.cluster import load_cluster
from bt_bench.config.load import load_config
from bt_bench.results.run.nouns import Quantity, ReasonCode, Status
from bt_bench.results.run.plan import Plan
from bt_bench.suites.batch_preparation.workloads.conformance import conformance_workloads
from bt_bench.suites.batch_preparation.workloads.workload import InputWorkload
from bt_bench.suites.block_tables.operations import OPERATIONS
from bt_bench.variants import default_variants
from bt_bench.worker.measuring.nvtx_ranges import DOMAIN

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_GPU = "<!-- needs a GPU -->"


@dataclass(frozen=True)
class Block:
    """A fenced block, with the comment on the line before it (empty if there is none)."""

    comment: str
    language: str
    text: str
    line: int


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = []
    pattern = r"^(<!--[^\n]*-->\n)?```(\w*)\n(.*?)^```$"
    text = text_of(page)
    for match in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Block((match[1] or "").strip(), match[2], match[3], line))
    return found


def pages_with(language: str) -> list[Path]:
    return [page for page in DOCS if any(b.language == language for b in blocks(page))]


def page(name: str) -> str:
    return text_of(ROOT / "docs" / name)


# Sessions


@dataclass(frozen=True)
class Command:
    """A line `$ COMMAND` and the output that the page gives for it."""

    line: str
    wanted: str


def commands(block: Block) -> list[Command]:
    text = re.sub(r"\\\n *", "", block.text)  # a command that goes on in the next line
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", f"line {block.line}: a console block begins with a command"
    return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


@dataclass(frozen=True)
class Ended:
    """How a command of a session ended."""

    code: int
    out: str
    err: str


class Session:
    """Runs the commands of one page; the working directory is the session's folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def run(self, line: str) -> Ended:
        line, _, target = line.partition(" > ")
        words = shlex.split(line)
        with self._monkeypatch.context() as patch:
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                patch.setenv(*words.pop(0).split("=", 1))
            ended = self._run(words)
        if target:
            Path(target.strip()).write_text(ended.out, encoding="utf-8")
            ended = Ended(ended.code, "", ended.err)
        return ended

    def _run(self, words: list[str]) -> Ended:
        program, *arguments = words
        if program == "bt-bench":
            with (
                patch("bt_bench.cli.next_steps.program", lambda: program),
                # How small a scenario gets is not in the pages.
                patch("bt_bench.runs.faults.SHRINK_SECONDS", 0.0),
                _one_workload_of_batches(),
            ):
                # Pages have numbers of checks only where they check.
                outcome = run(*arguments, checks=None if arguments[0] == "check" else ("corners",))
            return Ended(outcome.code, outcome.out, outcome.err)
        if program == "python":
            # In this process, which has torch imported.
            out = io.StringIO()
            with without_worker(), contextlib.redirect_stdout(out):
                runpy.run_path(arguments[0], run_name="__main__")
            return Ended(0, out.getvalue(), "")
        folder = ROOT if program == "make" else None
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=600, cwd=folder, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)


def _one_workload_of_batches() -> AbstractContextManager[object]:
    """Checks of `batch_preparation` take seconds for each workload; no page has their number."""
    name = "drafts, lookahead, two groups"

    def one(seed: int) -> dict[str, InputWorkload]:
        return {name: conformance_workloads(seed)[name]}

    return patch("bt_bench.suites.batch_preparation.suite.conformance_workloads", one)


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Session(monkeypatch)


@pytest.mark.parametrize("path", pages_with("console"), ids=lambda path: path.name)
def test_sessions(path, session):
    code = 0
    for block in blocks(path):
        if block.comment.startswith("<!-- file: "):
            target = Path(block.comment.split()[2])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        if block.language != "console" or block.comment == NEEDS_GPU:
            continue
        todo = commands(block)
        for command, following in zip(todo, [*todo[1:], None], strict=True):
            if command.line == "echo $?":
                assert command.wanted.strip() == str(code)
                continue
            ended = session.run(command.line)
            code = ended.code
            asked = following is not None and following.line == "echo $?"
            assert code == 0 or asked, (path.name, command.line, ended)
            assert_output(command, ended.err if code == 2 else ended.out)


def assert_output(command: Command, got: str) -> None:
    """Fails unless the output is what the page says it is."""
    shown = "".join(f"{line}\n" for line in lines_of(got))
    matches = not command.wanted.strip() or re.fullmatch(pattern_of(command.wanted), shown)
    assert matches, f"$ {command.line}\nexpected:\n{command.wanted}\ngot:\n{got}"


def lines_of(text: str) -> list[str]:
    """Lines that are not empty, with blanks all alike."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def pattern_of(wanted: str) -> str:
    """The pattern of such lines, which a page may break where it likes."""
    lines = lines_of(wanted)
    made = "(?>"
    for line, following in zip(lines, [*lines[1:], "…"], strict=True):
        if line == "…":
            made += r")(?>(?:.*\n)*?"
        else:
            made += re.escape(line).replace(r"\ ", r"\s").replace("…", ")(?>(?s:.*?)")
            made += r"\n" if following == "…" else r"\s"
    # But for the end, the first place is the best one: no output takes long to be refused.
    return "(?:".join(made.rsplit("(?>", 1)) + ")"


@pytest.mark.parametrize(
    ("wanted", "got", "matches"),
    [
        ("a\n…\nc\n", "a\nc\n", True),
        ("a\n…\nc\n", "a\n\nb\nb\nc\n", True),
        ("a\n…\n", "a", True),
        ("…\nc\n", "c\n", True),
        ("a\n…\nc\n", "ab\nc\n", False),
        ("a\n…\nc\n", "a\nbc\n", False),
        ("a\n…\n…\nc\n", "a\nc\n", True),
        ("a …  c\n", "a  b\n c", True),
        ("a b\nc\n", "a\nb c", True),
        ("a: … c\n", "a: c", False),
        ("… b\n", "a b b\n", True),
        ("a…c\n", "ac", True),
        ("a…c\n", "ab", False),
    ],
)
def test_an_ellipsis_that_is_a_line_stands_for_whole_lines(wanted, got, matches):
    with contextlib.nullcontext() if matches else pytest.raises(AssertionError):
        assert_output(Command("", wanted), got)


def test_comments_of_blocks_have_one_form():
    for path in DOCS:
        known = [block.comment for block in blocks(path) if block.comment]
        found = re.findall(r"<!--.*?-->", text_of(path), re.DOTALL)
        # Tables that a command writes; tests/studies/test_readme.py looks at these.
        known += [
            each for each in found if re.fullmatch(r"<!-- (figures: .*|end of figures) -->", each)
        ]
        assert sorted(known) == sorted(found), path.name
        for block in blocks(path):
            if block.language == "console":
                assert block.comment in ("", NEEDS_GPU), (path.name, block.line)
            elif block.comment:
                assert re.fullmatch(r"<!-- file: [\w./]+ -->", block.comment), (path.name, block)
            assert "$ bt-bench" not in block.text or block.language == "console", path.name


def test_only_what_needs_a_gpu_is_marked():
    marked = [
        command.line
        for path in DOCS
        for block in blocks(path)
        if block.comment == NEEDS_GPU
        for command in commands(block)
    ]
    assert marked
    needs = re.compile(r"overhead|--device cuda|--vllm-source|profile (?!.*--tool (static|nsys))")
    assert all(needs.search(line) for line in marked)


# Examples


def test_yaml_loads(tmp_path):
    """Those of configs.md are loaded by tests/config/test_stock.py."""
    for path in DOCS:
        for block in blocks(path):
            if block.language == "yaml" and path.name != "configs.md":
                (tmp_path / "config.yaml").write_text(block.text, encoding="utf-8")
                if block.text.startswith("scheduler:"):
                    load_cluster(tmp_path / "config.yaml", path.name)
                else:
                    load_config(str(tmp_path / "config.yaml"))


def test_the_gate_of_the_documentation_can_fail(tmp_path):
    """It compares variants of the repository: shipped ones are the same for both revisions."""
    (config,) = [each.text for each in blocks(ROOT / "docs/ci.md") if each.language == "yaml"]
    (tmp_path / "gate.yaml").write_text(config, encoding="utf-8")
    assert not set(load_config(tmp_path / "gate.yaml").variants) & set(default_variants())


@pytest.mark.slow
def test_variant_of_the_documentation_passes_through_every_operation(session):
    """The page checks it through what `quick` has; it must hold for single operations too."""
    (block,) = [
        block
        for block in blocks(ROOT / "docs" / "variants.md")
        if block.comment == "<!-- file: my_kernels/gather_chunks.py -->"
    ]
    Path("my_kernels").mkdir()
    Path("my_kernels/gather_chunks.py").write_text(block.text, encoding="utf-8")
    ended = session.run(
        "bt-bench check quick -k uniform_1grp --kernels my_kernels --variants gather_chunks "
        f"--operations {','.join(OPERATIONS)}"
    )
    assert ended.code == 0, ended
    assert "60 passed, 0 failed, 126 skipped" in ended.out


def test_result_of_the_documentation_is_a_trimmed_real_one(session):
    (block,) = [b for b in blocks(ROOT / "docs" / "results.md") if b.language == "json"]
    shown = json.loads(block.text)
    session.run("bt-bench sweep quick -k uniform_1grp --variants fused --operations step --out r")
    real = json.loads(Path("r/fused.json").read_text(encoding="utf-8"))
    assert_trimmed(shown, real, "$")
    (case,), (real_case,) = shown["cases"], real["cases"]
    for key in ("key", "operation", "check", "launches"):
        assert case[key] == real_case[key]
    assert case["workload"]["digest"] == real_case["workload"]["digest"]
    assert shown["plan"] == real["plan"]


def assert_trimmed(shown: object, real: object, where: str) -> None:
    """Fails where the example has a key or a type that the real result does not have."""
    assert type(shown) is type(real), where
    if isinstance(shown, dict) and isinstance(real, dict):
        for key, value in shown.items():
            assert key in real, f"{where}.{key}"
            assert_trimmed(value, real[key], f"{where}.{key}")
    elif isinstance(shown, list) and isinstance(real, list):
        for index, value in enumerate(shown):
            assert_trimmed(value, real[min(index, len(real) - 1)], f"{where}[{index}]")


# Links


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    targets += re.findall(r"^\[[^]]+\]: (\S+)$", text, re.MULTILINE)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), (path.name, target)
        assert ROOT in (linked, *linked.parents), (path.name, target)
        assert not anchor or anchor in anchors(linked), (path.name, target)


def anchors(path: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_that_messages_name_exist():
    """The code refers readers to pages of the documentation."""
    for path in [*(ROOT / "bt_bench").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]:
        for name in re.findall(r"docs/[\w-]+\.md", text_of(path)):
            assert (ROOT / name).is_file(), (path, name)


# Completeness


def test_every_command_and_variable_is_documented():
    text = page("cli.md")
    listed = run("--help").out
    found = re.findall(r"^│ (\w+)  ", listed, re.MULTILINE)
    assert "sweep" in found
    for command in found:
        assert f"### `{command}`" in text, command
    sources = [text_of(path) for path in (ROOT / "bt_bench").rglob("*.py")]
    for name in {name for source in sources for name in re.findall(r"\bBT_BENCH_[A-Z]+\b", source)}:
        assert f"`{name}`" in text, name


def test_every_name_of_a_result_is_documented():
    for quantity in Quantity:
        assert f"### `{quantity}`" in page("measurement.md"), quantity
    for name in (*Status, *ReasonCode):
        assert f"| `{name}` |" in page("results.md"), name
    for name, field in Plan.model_fields.items():
        (row,) = re.findall(rf"^\| `{name}` \| ([^|]*) \|", page("configs.md"), re.MULTILINE)
        value = field.default
        text = f"[{', '.join(value)}]" if isinstance(value, list) else str(value).lower()
        assert row.strip("` ") in (text, text.removesuffix(".0")), name
    assert f"domain `{DOMAIN}`" in page("measurement.md")


def test_every_room_is_on_the_map():
    text = page("architecture.md")
    for path in (ROOT / "bt_bench").iterdir():
        if any(path.glob("*.py")):  # caches of former rooms may be left in a checkout
            assert f"`bt_bench/{path.name}/`" in text, path
        elif path.suffix == ".py" and not path.name.startswith("__"):
            assert f"`{path.name}`" in text, path
    for path in (ROOT / "kernels" / "bt_kernels").glob("[!_]*"):
        if path.is_file() or any(path.glob("*.py")):
            assert f"`{path.name}{'/' * path.is_dir()}`" in text, path


def test_every_file_that_the_documentation_names_is_there():
    for path in DOCS:
        for name in re.findall(r"`((?:bt_bench|kernels|studies|tests)/[\w/.]+)`", text_of(path)):
            assert (ROOT / name).exists(), (path.name, name)
    rooms = "cli|runs|worker|report|analysis|config|workloads|variants|results"
    for name in re.findall(rf"`((?:{rooms})/[\w/.]+)`", page("architecture.md")):
        assert any((ROOT / top / name).exists() for top in ("bt_bench", "kernels/bt_kernels")), name


def test_layers_of_the_documentation_are_those_of_the_contracts():
    settings = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    shown = [
        block.text.splitlines()
        for block in blocks(ROOT / "docs" / "architecture.md")
        if block.language == "text"
    ]
    assert shown == layers


def test_sessions_leave_the_repository_alone():
    """A page's session runs in a folder of its own: nothing in it may name one outside."""
    for path in DOCS:
        for block in blocks(path):
            if block.language == "console":
                assert not re.search(r"(?<!\S)(/|~|\.\.)", block.text), (path.name, block.line)
    assert os.environ["TRITON_INTERPRET"] == "1"
