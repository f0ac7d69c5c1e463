"""Redaction of single texts: no secret is left, and the rest stays useful."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_bench.base.redacting import Redactor, redactor_here

ANN = Redactor(users=["ann"], hosts=["gpu7.corp.example"], folders=["/data/my runs/first"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/kernels/mine.py:12: no", "mine.py:12: no"),
        ("(/home/ann/kernels/mine.py:12, in step)", "(mine.py:12, in step)"),
        ('File "/home/ann/my kernels/mine.py", line 3, in f', 'File "mine.py", line 3, in f'),
        ("[Errno 13] Permission denied: '/srv/a b/c.csv'", "[Errno 13] Permission denied: 'c.csv'"),
        ("trace=/srv/x/a.csv,/srv/x/b.csv", "trace=b.csv"),
        ("PATH=/home/ann/bin:/usr/bin", "PATH=bin:bin"),
        ("LD_PRELOAD=/opt/secret/lib.so.1: slow", "LD_PRELOAD=lib.so.1: slow"),
        ("-I/opt/secret/include", "-I/opt/secret/include"),
        ("gcc -I/opt/secret/include", "gcc -Iinclude"),
        ("file:///opt/secret/run", "run"),
        ("//opt//secret//run/", "run"),
        ("~/secret/run ~bob/run", "run run"),
        ("../../home/bob/x.py", "x.py"),
        ("In /home/ann.", "In ~."),
        ("/Users/ann", "~"),
        ("ssh://bob@node3:22/srv/x", "<user>@<host>:x"),
        ("ann@gpu7:/srv/x", "<user>@<host>:x"),
        ("the host gpu7 of ann_2; gpu7.corp.example", "the host <host> of <user>_2; <host>"),
        ("anne, Ann, banner, ANN2", "anne, Ann, banner, ANN2"),
        ("see /data/my runs/first/fused.json", "see fused.json"),
        ("/weird/a:step/b.py:7", "b.py:7"),
        ("C++ and/or 3/4, n/a: step/decode event_us/busy", None),
        ("https://github.com/a/b 12 GB/s </details> <br/> / //", None),
        ("reports/run/fused.json ./x ../x", None),
    ],
)  # fmt: skip
def test_a_text(text, expected):
    assert ANN.text(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("/srv/my traces/a.csv", "a.csv"),
        ("trace=/srv/my traces/a.csv", "trace=a.csv"),
        ("--out=~/my runs/x", "--out=x"),
        ("/srv/a /srv/b", "a b"),
        ("step/uniform", "step/uniform"),
    ],
)
def test_an_argument_is_a_path_as_a_whole(argument, expected):
    assert Redactor().argument(argument) == expected


def test_names_are_learned_from_paths_and_addresses():
    found = Redactor(keep={"vllm"}).learned_from(
        ["x /home/ann/y", "bob@node3.corp", "~carl/x", "vllm@old", "/home/user/x", "/homes/al/x"]
    )
    text = "ann, bob, carl, node3, vllm@old, old, user, al"
    assert found.text(text) == "<user>, <user2>, <user3>, <host>, vllm@old, old, user, al"
    assert found.text("node3.corp") == "<host>"


def test_names_that_texts_need_are_no_secrets():
    found = Redactor(users=["fused", "root", "ann", "42"], keep={"ann"})
    assert found.text("fused by root, ann and 42") == "fused by root, ann and 42"


def test_it_knows_this_process():
    here = redactor_here([Path("some run")])
    assert here.text(f"{Path.home()}/x") == "x"
    assert here.text(f"see {Path.cwd()}/some run/x") == "see x"
    assert getpass.getuser() in here.users


names = st.from_regex(r"zq[a-z]{2,6}([-_.]?[a-z0-9]{1,3})?", fullmatch=True)
TEMPLATES = [
    "{0}/home/{user}/{folder}/mine.py:12{1}",
    'File "/home/{user}/{folder} x/mine.py", line 3',
    "{0}{user}@{host}{1}",
    "{user} on {host} cannot",
    "--set trace=/data/{folder}/{user}/x.csv",
    "PATH=/home/{user}/bin:/opt/{folder}/bin",
    "{0}/{folder}//{user}/x{1}",
    "file:///mnt/{folder}/x",
    "{0}~{user}/{folder}/x ~/{folder}/x{1}",
    "ssh://{user}@{host}:22/{folder}/x",
    "cc -I/home/{user}/{folder}/include",
    "{0}/home/{user}{1}",
    "kernels_{user}",
    "/Users/{user}/{folder}/x.py:7: in f",
    "LD_PRELOAD=/{folder}/lib.so: times",
]
around = st.sampled_from(["", " ", "(", "'", '"', ": ", "=", ",", "[", "\n", "`", "<", "-> ", "; "])


@settings(max_examples=60, deadline=None)
@given(
    user=names,
    host=st.tuples(names, st.sampled_from(["", ".corp.example", ".local"])).map("".join),
    folder=names,
    parts=st.lists(st.tuples(st.sampled_from(TEMPLATES), around, around), min_size=1, max_size=4),
)
def test_no_planted_secret_is_left(user, host, folder, parts):
    texts = [
        template.format(before, after, user=user, host=host, folder=folder)
        for template, before, after in parts
    ]
    known = Redactor().learned_from([*texts, f"/home/{user}/x {user}@{host}"])
    for text in texts:
        found = known.text(text)
        for secret in (user, host, host.partition(".")[0], folder):
            assert secret not in found, (text, found)
        assert known.text(found) == found


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="/~ab@.:'\"<>-=() \n,", max_size=25))
def test_any_text_is_redacted_once_and_for_all(text):
    known = Redactor(users=["abb", "bab"], hosts=["aab.ba"])
    found = known.text(text)
    assert known.text(found) == found
    assert Redactor().text(found) == found
