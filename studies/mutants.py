"""Plant mutants in bt_bench and the kernels, and see whether the tests of their rooms find them.

    python studies/mutants.py --out mutants.json
    python studies/mutants.py --rev v1.0 --same-as mutants.json --out before.json

A mutant changes one operator, constant or statement. It is found if a test of its room fails, or
does not end in time. The room of `bt_bench/analysis/x.py` is `tests/analysis`; the room of kernels
is `tests/kernels`. Tests of the module itself run first, and no test after the first failure. With
`--same-as`, mutants of an earlier run are planted in another commit, wherever their functions are
now. Needs no GPU. One mutant takes up to a minute on one core.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bt_bench.base.limits import cores_here

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"bt_bench": "bt_bench", "bt_kernels": "kernels/bt_kernels"}
SWAPPED: Mapping[type[ast.AST], Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
TIMEOUT_S = 600


@dataclass(frozen=True)
class Mutant:
    """A statement of a function, and what stands in its place.

    Args:
        module: dotted name of the module.
        function: qualified name of the function.
        statement: the statement, as `ast.unparse` writes it.
        mutated: what replaces it.
    """

    module: str
    function: str
    statement: str
    mutated: str


def mutants_of(source: str, module: str) -> Iterator[Mutant]:
    """Yield all mutants of a module; see `_single_statements`."""
    for function, statement in _single_statements(source):
        for mutated in _mutated(statement):
            yield Mutant(module, function, ast.unparse(statement), mutated)


def _single_statements(source: str) -> list[tuple[str, ast.stmt]]:
    """Return the statements that have lines of their own, and that their functions have once."""
    lines = source.splitlines()
    statements = [
        (function, statement)
        for function, statement in _statements(ast.parse(source))
        if not lines[statement.lineno - 1][: statement.col_offset].strip()
        and not lines[statement.lineno - 1].lstrip().startswith("elif")
    ]
    texts = [(function, ast.unparse(statement)) for function, statement in statements]
    times = Counter(texts)
    return [each for each, text in zip(statements, texts, strict=True) if times[text] == 1]


def planted(source: str, mutant: Mutant) -> str | None:
    """Return a module with a mutant in it; `None` if it does not have the statement once."""
    places = [
        statement
        for function, statement in _statements(ast.parse(source))
        if function == mutant.function and ast.unparse(statement) == mutant.statement
    ]
    if len(places) != 1:
        return None
    [place] = places
    lines = source.splitlines(keepends=True)
    indent = " " * place.col_offset
    new = "".join(f"{indent}{line}\n" for line in mutant.mutated.splitlines())
    return "".join(lines[: place.lineno - 1]) + new + "".join(lines[place.end_lineno :])


def _statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the innermost statements of all functions, with the names of the functions."""

    def inside(
        node: ast.AST, names: tuple[str, ...], called: bool
    ) -> Iterator[tuple[str, ast.stmt]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                is_function = isinstance(child, ast.FunctionDef)
                yield from inside(child, (*names, child.name), called or is_function)
            elif called and isinstance(
                child, ast.Assign | ast.AugAssign | ast.Return | ast.Expr | ast.Raise
            ):
                yield ".".join(names), child
            elif called and isinstance(child, ast.If | ast.While):
                if not child.orelse:
                    yield ".".join(names), child
                yield from inside(child, names, called)
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from inside(child, names, called)

    yield from inside(tree, (), False)


def _mutated(statement: ast.stmt) -> Iterator[str]:
    """Yield the statement with each of the possible changes."""
    text = ast.unparse(statement)
    is_doc = isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call)
    if is_doc or isinstance(statement, ast.Raise):
        return
    if isinstance(statement, ast.Expr | ast.AugAssign):
        yield "pass"
    for index in range(len(_changeable(statement))):
        [copy] = ast.parse(text).body
        if _change(_changeable(copy)[index]):
            yield ast.unparse(copy)


def _changeable(statement: ast.stmt) -> list[ast.AST]:
    """Return the nodes of a statement, without those of its body."""
    return [*ast.walk(statement.test if isinstance(statement, ast.If | ast.While) else statement)]


def _change(node: ast.AST) -> bool:
    """Change a node, and return whether it was possible."""
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in SWAPPED:
            node.ops[0] = SWAPPED[type(first)]()
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED:
            node.op = SWAPPED[type(op)]()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value) | float(value)):
            node.value = value + 1
        case ast.UnaryOp(op=ast.Not()):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case _:
            return False
    return True


def drawn(tree: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants, alike many from each room; each of another statement."""
    rooms: dict[str, list[tuple[str, str, ast.stmt]]] = defaultdict(list)
    for package, folder in SOURCES.items():
        for path in sorted((tree / folder).rglob("*.py")):
            module = ".".join((package, *path.relative_to(tree / folder).with_suffix("").parts))
            found = _single_statements(path.read_text(encoding="utf-8"))
            rooms[_room(module)] += [(module, *each) for each in found]
    rooms = {room: statements for room, statements in rooms.items() if statements}
    generator = random.Random(seed)
    share = -(-count // len(rooms))
    chosen: list[Mutant] = []
    for _, statements in sorted(rooms.items()):
        generator.shuffle(statements)
        mutants = (
            Mutant(module, function, ast.unparse(statement), generator.choice(changes))
            for module, function, statement in statements
            if (changes := list(_mutated(statement)))
        )
        chosen += islice(mutants, share)
    return chosen


def _room(module: str) -> str:
    package, _, rest = module.partition(".")
    return "kernels" if package == "bt_kernels" else rest.split(".")[0]


def find(mutant: Mutant, tree: Path) -> str:
    """Plant a mutant in a tree and run the tests of its room.

    Returns:
        the first failure, "timeout", "" if nothing failed, or "absent" if the tree does not have
        the statement.
    """
    place = _place(mutant, tree)
    if place is None:
        return "absent"
    path, mutated = place
    original = path.read_text(encoding="utf-8")
    path.write_text(mutated, encoding="utf-8")
    try:
        return failure(tree, _tests_of(path, tree), path.stem)
    finally:
        path.write_text(original, encoding="utf-8")


def failure(tree: Path, tests: Path, first: str = "") -> str:
    """Run tests of a tree, those of a module first; return the first failure, or ""."""
    own = sorted(map(str, (tree / tests).rglob(f"test_{first}.py")))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    command += ["-n", "0", "-m", "not slow and not gpu", *own, str(tests)]
    paths = os.pathsep.join(map(str, (tree, tree / "kernels", os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    keywords: dict[str, Any] = {"cwd": tree, "env": environment, "timeout": TIMEOUT_S}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **keywords)
    except subprocess.TimeoutExpired:
        return "timeout"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "" if done.returncode == 0 else [*lines, f"exit {done.returncode}"][0]


def _tests_of(path: Path, tree: Path) -> Path:
    """Return the tests of a module's room, relative to the tree."""
    parts = path.relative_to(tree).parts
    room = Path("tests", "kernels" if parts[0] == "kernels" else parts[1])
    return room if (tree / room).is_dir() else Path("tests", f"test_{path.stem}.py")


def _place(mutant: Mutant, tree: Path) -> tuple[Path, str] | None:
    """Return the file that has the mutant's function, and the file's text with the mutant."""
    package, *parts = mutant.module.split(".")
    folder = tree / SOURCES[package]
    own = folder.joinpath(*parts).with_suffix(".py")
    paths = [own] if own.is_file() else sorted(folder.rglob(f"{parts[-1]}.py"))
    found = [(path, planted(path.read_text(encoding="utf-8"), mutant)) for path in paths]
    hits = [(path, text) for path, text in found if text]
    return hits[0] if len(hits) == 1 else None


def run(mutants: list[Mutant], rev: str, jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Run all mutants in `jobs` copies of a commit's tree, after its rooms as they are.

    Yields:
        each mutant and what found it, in order.
    """
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        first, *others = (_checkout(rev, Path(scratch) / str(index)) for index in range(jobs))
        for tree in (first, *others):
            trees.put(tree)

        def in_a_tree(work: Callable[[Path], str], name: str) -> str:
            tree = trees.get()
            try:
                found = work(tree)
            finally:
                trees.put(tree)
            print(f"{name}: {found or 'nothing failed'}", file=sys.stderr)
            return found

        places = [_place(mutant, first) for mutant in mutants]
        rooms = sorted({_tests_of(place[0], first) for place in places if place})
        broken = [
            *pool.map(lambda room: in_a_tree(lambda tree: failure(tree, room), str(room)), rooms)
        ]
        if any(broken):
            sys.exit(f"tests fail without a mutant: {', '.join(filter(None, broken))}")
        each = pool.map(
            lambda mutant: in_a_tree(lambda tree: find(mutant, tree), mutant.module), mutants
        )
        yield from zip(mutants, each, strict=True)


def _checkout(rev: str, into: Path) -> Path:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(into)], check=True)
    subprocess.run(["git", "-C", str(into), "checkout", "-q", rev], check=True)
    return into


def main() -> None:
    """Draw or read mutants, run them, and write what found each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rev", default="HEAD", help="the commit; default: HEAD")
    parser.add_argument("--count", type=int, default=220)
    parser.add_argument("--seed", type=int, default=20261127)
    parser.add_argument("--same-as", type=Path, help="a file of an earlier run")
    parser.add_argument("--jobs", type=int, default=cores_here())
    args = parser.parse_args()
    if args.same_as:
        rows = json.loads(args.same_as.read_text(encoding="utf-8"))["mutants"]
        mutants = [Mutant(*(row[key] for key in Mutant.__dataclass_fields__)) for row in rows]
    else:
        mutants = drawn(ROOT, args.count, args.seed)
    done = []
    for mutant, found in run(mutants, args.rev, args.jobs):
        done.append({**asdict(mutant), "found_by": found})
        args.out.write_text(json.dumps({"rev": args.rev, "mutants": done}, indent=1) + "\n")
    missed = sum(not row["found_by"] for row in done)
    absent = sum(row["found_by"] == "absent" for row in done)
    print(f"{len(done) - missed - absent} found, {missed} missed, {absent} absent in {args.rev}")


if __name__ == "__main__":
    main()
