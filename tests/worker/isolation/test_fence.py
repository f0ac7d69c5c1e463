"""Base and head see their own trees only, whatever leads from one to the other.

Each test runs a process of its own, as a worker is: what keeps it to its tree changes the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from support.processes import forked_programs
from support.repositories import write
from support.sides import write_sides

WORKER = """\
import json, os, sys
from pathlib import Path
{prologue}
from bt_bench.worker.machine import activity
from bt_bench.variants.catalogue import VariantEntry, load_apart
from bt_bench.base.errors import UsageError
from bt_bench.worker.isolation.fence import Fence
from bt_bench.variants.isolation import Isolation

own, other, caches = map(Path, sys.argv[1:4])
base = own.name == "base"
repository = other if base else own
fence = Fence(
    Isolation("base" if base else "head", own, (("head" if base else "base", other),), repository,
              caches, audited=True,
              installed=tuple(map(Path, os.environ.get("INSTALLED", "").split())),
              tracked=tuple(map(Path, os.environ.get("TRACKED", "").split())))
)
said = None
activity.current().expect({{"one": 0}})
try:
    fence.put_up()
    with activity.current().running("one"):
        entry = VariantEntry("one", "", own / "mine/one.py", shipped=False, package="bt_kernels")
        variant = load_apart(entry)
        said = variant.says()
    fence.refuse()
except UsageError as error:
    print(json.dumps({{"refused": str(error)}}))
else:
    print(json.dumps({{"said": said, "cwd": os.getcwd(), "path": sys.path}}))
"""


@pytest.fixture
def trees(tmp_path):
    """Two trees with a helper, data and a variant; what the helper says is the tree's name."""

    def make(head="", body="return 0", **files):
        write_sides(tmp_path, head, body, **files)
        return tmp_path

    return make


IMPORTED = "bt_bench.worker.isolation.fence, bt_bench.variants.catalogue, torch, triton"


@pytest.fixture(scope="module", autouse=True)
def _forked():
    """Each process is forked from one, unless its start is part of what is tested."""
    with forked_programs(IMPORTED) as forks["run"]:
        yield


forks = {}


def look(top, name, *, prologue="", cwd=None, **environment):
    """What the process of one side says, or why it is refused."""
    other = {"base": "head", "head": "base"}[name]
    code = WORKER.format(prologue=prologue)
    arguments = [str(top / name), str(top / other), str(top / "caches")]
    cwd = cwd or top / "head"  # the user's checkout
    if "LD_LIBRARY_PATH" in environment:  # the loader reads it at once
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=cwd,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        exit_code, said = done.returncode, done.stdout or done.stderr
    else:
        exit_code, said = forks["run"](code, arguments, cwd, **environment)
    assert exit_code == 0, said
    return json.loads(said)


BY_HELPER = {"head": "import helper", "body": "return helper.NAME"}
LATE = {"body": "import helper; return helper.NAME"}
# As setuptools has it in an editable install: a finder with the places of modules written out.
FINDER = """\
import importlib.util
class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "helper":
            return importlib.util.spec_from_file_location(name, {place!r})
sys.meta_path.append(Editable)
"""


# Each is a process: of the ways but one, only the first import of the base is not slow.
WAYS = [
    pytest.param(side, way, variant, marks=[] if way == "PYTHONPATH" or quick else pytest.mark.slow)
    for way in ("PYTHONPATH", "python -m", "pth", "finder")
    for side, variant, quick in (
        ("base", BY_HELPER, True),
        ("base", LATE, False),
        ("head", BY_HELPER, False),
        ("head", LATE, False),
    )
]


@pytest.mark.parametrize(("side", "way", "variant"), WAYS)
def test_a_module_of_the_checkout_is_that_of_the_own_tree(trees, way, variant, side):
    top = trees(**variant)
    lib = str(top / "head/lib")
    ways = {
        "PYTHONPATH": {"PYTHONPATH": lib},
        "python -m": {"prologue": "sys.path[0] = os.getcwd()", "cwd": top / "head/lib"},
        "pth": {"prologue": f"import site; site.addsitedir({str(top / 'site')!r})"},
        "finder": {"prologue": FINDER.format(place=f"{lib}/helper.py")},
    }
    write(top, {"site/editable.pth": f"{lib}\n"})
    assert look(top, side, **ways[way])["said"] == side


@pytest.mark.parametrize("place", ["site-packages", "site-packages/deeper"])
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_module_that_git_tracks_among_what_is_installed_is_that_of_the_own_tree(
    trees, place, side
):
    """As in a repository whose top, or `lib`, is an environment too."""
    top = trees(
        head="import helper, installed, importlib.util",
        body="return [helper.NAME, installed.NAME, bool(importlib.util.find_spec('gone'))]",
        **{f"{place}/helper.py": "NAME = {name!r}\n"},
    )
    write(top, {f"head/{place}/installed.py": "NAME = 'installed'\n", f"base/{place}/gone.py": ""})
    environment = {
        "PYTHONPATH": f"{top}/head/{place}",
        "INSTALLED": f"{top}/head/site-packages",
        "TRACKED": f"{place}/helper.py {place}/gone.py",
    }
    assert look(top, side, **environment)["said"] == [side, "installed", side == "base"]


def test_paths_that_lead_nowhere_do_not_end_a_worker(trees):
    top = trees(**BY_HELPER)
    (top / "head/loop").symlink_to("loop")
    odd = [f"{top}/head/loop/x", f"{top}/head/{'n' * 300}", f"{top}/base/{'n' * 300}"]
    said = look(top, "base", PYTHONPATH=":".join([*odd, f"{top}/head/lib"]), ODD=odd[0])["said"]
    assert said == "base"


def test_a_module_in_an_archive_is_that_of_the_own_tree(trees):
    top = trees(**BY_HELPER)
    for name in ("base", "head"):
        with zipfile.ZipFile(top / name / "lib/all.zip", "w") as archive:
            archive.writestr("helper.py", f"NAME = {name!r}\n")
    for side in ("base", "head"):
        assert look(top, side, PYTHONPATH=f"{top}/head/lib/all.zip")["said"] == side


def test_a_package_and_its_modules_that_a_finder_has(trees):
    finder = FINDER.replace('"helper"', '"pack"').replace("(name, {place!r})", "(name, {place!r})")
    top = trees(
        head="import pack.sub",
        body="return [pack.NAME, pack.sub.NAME, pack.__path__]",
        **{"lib/pack/__init__.py": "NAME = {name!r}\n", "lib/pack/sub.py": "NAME = {name!r}\n"},
    )
    prologue = finder.format(place=str(top / "head/lib/pack/__init__.py"))
    assert look(top, "base", prologue=prologue)["said"][:2] == ["base", "base"]


def test_what_the_base_does_not_have_is_not_there(trees):
    top = trees(head="import new", body="return new.NAME")
    write(top, {"head/lib/new.py": "NAME = 'head'\n"})
    finder = FINDER.replace('"helper"', '"new"').format(place=str(top / "head/lib/new.py"))
    assert look(top, "head", prologue=finder)["said"] == "head"
    refused = look(top, "base", prologue=finder)["refused"]
    assert "mine/one.py:2: the variant file does not import: ModuleNotFoundError" in refused
    assert "No module named 'new'" in look(top, "base", PYTHONPATH=str(top / "head/lib"))["refused"]


def test_data_beside_the_variant_and_in_the_working_directory(trees):
    top = trees(
        head="from pathlib import Path",
        body="return [Path(p).read_text() for p in "
        "(Path(__file__).with_name('data.json'), 'mine/data.json')]",
    )
    assert look(top, "base")["said"] == ['"base"', '"base"']
    assert look(top, "head")["said"] == ['"head"', '"head"']


def test_the_working_directory_is_in_the_own_tree(trees):
    top = trees()
    (top / "head/new").mkdir()
    for there, here in (("head", "base"), ("head/mine", "base/mine"), ("head/new", "base")):
        assert look(top, "base", cwd=top / there)["cwd"] == str(top / here)
    assert look(top, "base", cwd=top)["cwd"] == str(top)  # in no tree


@pytest.mark.parametrize(
    "body",
    [
        "return open(os.environ['DATA'][1:]).read()",
        "return os.listdir(os.path.dirname(os.environ['DATA'][1:]))",
        "import subprocess; return str(subprocess.check_output(['cat', os.environ['DATA'][1:]]))",
        "\n        try: return open(os.environ['DATA'][1:]).read()\n        finally: return 1",
    ],
    ids=["open", "listdir", "subprocess", "hidden"],
)
def test_a_file_of_the_other_tree_is_noticed(trees, body):
    top = trees(head="import os", body=body)
    data = "@" + str(top / "head/mine/data.json")
    refused = look(top, "base", DATA=data)["refused"]
    assert refused.startswith("base does not run on its own files: a variant ")
    assert "which is a file of head" in refused
    assert "said" in look(top, "head", DATA=data)
    assert "refused" in look(top, "head", DATA="@" + str(top / "base/mine/data.json"))


def test_a_symlink_into_the_checkout(trees):
    """An absolute one leads the base to the head's file; a relative one stays in the tree."""
    top = trees(
        head="import os, sys; sys.path.insert(0, os.path.dirname(__file__)); import near",
        body="return near.NAME",
    )
    for name in ("base", "head"):
        (top / name / "mine/near.py").symlink_to(top / "head/lib/helper.py")
    assert look(top, "head")["said"] == "head"
    # The file is led to as any other of the checkout.
    assert look(top, "base")["said"] == "base"
    for name in ("base", "head"):
        (top / name / "mine/near.py").unlink()
        (top / name / "mine/near.py").symlink_to("../lib/helper.py")
    assert look(top, "base")["said"] == "base"


def test_a_symlink_to_data_in_the_checkout_is_noticed(trees):
    top = trees(
        head="from pathlib import Path",
        body="return Path(__file__).with_name('link.json').read_text()",
    )
    (top / "base/mine/link.json").symlink_to(top / "head/mine/data.json")
    assert "opens" in look(top, "base")["refused"]


def test_a_library_of_the_other_tree_is_noticed_whoever_loads_it(trees, tmp_path):
    top = trees(
        head="import ctypes, os", body="return ctypes.CDLL(os.environ['LIB'].lstrip('@')).answer()"
    )
    build_library(top / "head/libanswer.so", "int answer(void) { return 42; }")
    library = str(top / "head/libanswer.so")
    assert look(top, "head", LIB=library)["said"] == 42
    refused = look(top, "base", LIB=f"@{library}")["refused"]
    assert f"{library} is loaded, a file of head" in refused
    # By its name alone, through the search path of the linker, which no audit sees.
    refused = look(top, "base", LIB="libanswer.so", LD_LIBRARY_PATH=str(top / "head"))["refused"]
    assert f"{library} is loaded, a file of head" in refused


def build_library(path, source, *options):
    command = ["gcc", "-shared", "-fPIC", *options, "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)


def test_an_extension_is_that_of_the_own_tree(trees):
    top = trees(head="import answer", body="return answer.__doc__")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name in ("base", "head"):
        source = (
            "#include <Python.h>\n"
            'static struct PyModuleDef d = {PyModuleDef_HEAD_INIT, "answer", "' + name + '"};\n'
            "PyMODINIT_FUNC PyInit_answer(void) { return PyModule_Create(&d); }\n"
        )
        include = f"-I{sysconfig.get_path('include')}"
        build_library(top / name / f"lib/answer{suffix}", source, include)
    for side in ("base", "head"):
        assert look(top, side, PYTHONPATH=str(top / "head/lib"))["said"] == side


def test_stale_bytecode_is_not_used(trees):
    """A file with the size and the time of its bytecode, and other code."""
    top = trees(**BY_HELPER)
    path = top / "head/lib/helper.py"
    stat = path.stat()
    environment = {"PYTHONPATH": str(path.parent), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(
        [sys.executable, "-c", "import helper"], env=os.environ | environment, check=True
    )
    assert list((path.parent / "__pycache__").iterdir())
    path.write_text("NAME = 'HEAD'\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert look(top, "head", **environment)["said"] == "HEAD"


def test_a_module_that_was_there_before_is_refused(trees):
    top = trees(**BY_HELPER)
    lib = str(top / "head/lib")
    prologue = f"sys.path.insert(0, {lib!r}); import helper"
    refused = look(top, "base", prologue=prologue)["refused"]
    assert f"module helper is {lib}/helper.py, a file of head" in refused


def test_a_copy_that_was_installed_from_the_repository_is_refused(trees):
    top = trees(**BY_HELPER)
    site = top / "site-packages"
    write(
        site,
        {
            "helper.py": "NAME = 'installed'\n",
            "helper-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: helper\nVersion: 1\n",
            "helper-1.dist-info/RECORD": "helper.py,,\n",
            "helper-1.dist-info/direct_url.json": json.dumps(
                {"url": (top / "head").as_uri(), "dir_info": {}}
            ),
        },
    )
    for side in ("base", "head"):
        refused = look(top, side, PYTHONPATH=str(site))["refused"]
        assert "helper.py, a copy installed from the repository" in refused
    # From elsewhere it is the same for both.
    (site / "helper-1.dist-info/direct_url.json").unlink()
    assert look(top, "base", PYTHONPATH=str(site))["said"] == "installed"


def test_caches_of_builds_are_apart(trees):
    top = trees(head="import os", body="return os.environ['TORCH_EXTENSIONS_DIR']")
    assert look(top, "base")["said"] == str(top / "caches/torch_extensions")


def test_what_is_started_has_the_path_too(trees):
    top = trees(
        head="import subprocess, sys",
        body="return subprocess.check_output("
        "[sys.executable, '-c', 'import helper; print(helper.NAME)']).decode().strip()",
    )
    assert look(top, "base", PYTHONPATH=str(top / "head/lib"))["said"] == "base"


def test_paths_of_the_environment_lead_to_the_own_tree_where_it_has_them(trees):
    top = trees(head="import os", body="return [os.environ[n] for n in ('LIBS', 'ONE', 'NONE')]")
    head = top / "head"
    environment = {"LIBS": f"/usr:{head}/lib", "ONE": str(head / "mine"), "NONE": str(head / "new")}
    said = look(top, "base", **environment)["said"]
    assert said == [f"/usr:{top}/base/lib", f"{top}/base/mine", str(head / "new")]
    assert look(top, "head", **environment)["said"] == list(environment.values())


def test_caches_by_name_are_of_one_revision(trees):
    """Triton's key of a binary lacks constants that a kernel reads of a module."""
    names = ("TRITON_CACHE_DIR", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    top = trees(head="import os", body=f"return [os.environ[n] for n in {names}]")
    for path in look(top, "base", TRITON_CACHE_DIR=str(top / "head/.triton"))["said"]:
        assert path.startswith(f"{top}/caches/")


@pytest.mark.parametrize(
    "call",
    [
        "subprocess.run('cat ' + P + ' >/dev/null', shell=True)",
        "subprocess.run(['true', '-I' + os.path.dirname(P)])",
        "subprocess.run(['true'], cwd=os.path.dirname(P))",
        "os.system('cat ' + P + ' >/dev/null')",
        "os.link(P, P + '.new')",
        "sqlite3.connect(P).close()",
        "(t := threading.Thread(target=lambda: open(P).close())).start() or t.join()",
    ],
)
def test_ways_around_a_path_are_noticed(trees, call):
    top = trees(
        head="import os, sqlite3, subprocess, threading\nP = os.environ['DATA'][1:]",
        body=f"{call}; return 1",
    )
    data = "@" + str(top / "head/mine/data.json")
    assert "of head" in look(top, "base", DATA=data)["refused"]


def test_a_program_that_the_search_path_has_in_the_checkout(trees):
    top = trees(head="import subprocess", body="return subprocess.check_output(['more']).decode()")
    for name in ("base", "head"):
        program = top / name / "bin/more"
        write(top / name, {"bin/more": f"#!/bin/sh\nprintf {name}\n"})
        program.chmod(0o755)
    path = f"{top}/head/bin:{os.environ['PATH']}"
    assert [look(top, side, PATH=path)["said"] for side in ("base", "head")] == ["base", "head"]


def test_an_interpreter_that_is_started_finds_the_own_tree_in_an_editable_install(trees):
    child = "[sys.executable, '-c', 'import helper; print(helper.NAME)']"
    top = trees(
        head="import subprocess, sys",
        body=f"return subprocess.check_output({child}).decode().strip()",
    )
    write(top, {"site/editable.pth": f"{top}/head/lib\n"})
    prologue = f"import site; site.addsitedir({str(top / 'site')!r})"
    assert look(top, "base", prologue=prologue)["said"] == "base"


def test_an_installed_module_of_a_name_that_the_tree_has(trees):
    """A copy whose origin nobody wrote down, as of a wheel from elsewhere."""
    top = trees(
        head="import pack", body="return pack.NAME", **{"src/pack/__init__.py": "NAME = 1\n"}
    )
    write(top, {"site-packages/pack/__init__.py": "NAME = 'installed'\n"})
    refused = look(top, "base", PYTHONPATH=str(top / "site-packages"))["refused"]
    assert "a copy installed from the repository" in refused


def test_an_import_hook_of_its_own_is_refused(trees):
    top = trees(**BY_HELPER)
    hook = (
        "import importlib.util, importlib.machinery\n"
        "class Loader(importlib.machinery.SourceFileLoader): pass\n"
    ) + FINDER.replace("(name, {place!r})", "(name, {place!r}, loader=Loader(name, {place!r}))")
    prologue = hook.format(place=str(top / "head/lib/helper.py"))
    assert "by an import hook (Loader)" in look(top, "base", prologue=prologue)["refused"]
