"""The stubs of the modules in C have what the modules have, with the same arguments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bt_kernels import native

FOLDER = Path(native.__file__).parent
NAMES = ("launcher", "staged")


def is_public(name: str) -> bool:
    return not name.startswith("_")


def parsed(name: str) -> ast.Module:
    return ast.parse((FOLDER / f"{name}.pyi").read_text(encoding="utf-8"))


def public_classes(name: str) -> dict[str, ast.ClassDef]:
    found = [node for node in parsed(name).body if isinstance(node, ast.ClassDef)]
    return {node.name: node for node in found if is_public(node.name)}


def members(body: list[ast.stmt]) -> set[str]:
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    attributes = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    return {name for name in functions | attributes if is_public(name)}


@pytest.mark.parametrize("name", NAMES)
def test_stubs_have_all_names_of_their_modules(name):
    module = native.load(name)
    if module is None:
        pytest.skip(f"no helper in C: {native.why_not(name)}")
    classes = public_classes(name)
    assert {*filter(is_public, dir(module))} == members(parsed(name).body) | {*classes}
    for known, node in classes.items():
        assert {*filter(is_public, dir(getattr(module, known)))} == members(node.body), known


def test_stubs_have_the_names_of_arguments():
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.[ch]")))
    keywords = re.findall(r"(\w+)_new\(PyTypeObject.*?keywords\[\] = \{(.*?)NULL\}", source, re.S)
    in_c = {name: re.findall(r'"(\w+)"', names) for name, names in keywords}
    classes = public_classes("launcher")
    assert {*in_c} == {name.lower() for name in classes}
    for name, node in classes.items():
        new = next(each for each in node.body if getattr(each, "name", "") == "__new__")
        assert [argument.arg for argument in new.args.args[1:]] == in_c[name.lower()]


def test_protocols_have_all_names_of_the_stubs():
    for name, protocol in (("launcher", native.Launcher), ("staged", native.Staged)):
        described = {*protocol.__annotations__, *filter(is_public, vars(protocol))}
        assert described == members(parsed(name).body) | {*public_classes(name)}
