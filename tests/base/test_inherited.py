"""Hold that a careless parent does not change how a process sees its children end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from bt_bench.base.inherited import hear_how_children_end
from bt_bench.base.processes import Child, answer, settle


@pytest.fixture
def ignored():
    """As after `exec` of a parent that has ignored SIGCHLD."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


def test_a_child_that_fails_has_failed(ignored):
    hear_how_children_end()
    assert subprocess.run([sys.executable, "-c", "exit(3)"], check=False).returncode == 3


def test_a_handler_of_ones_own_stays(ignored):
    def mine(*_):
        pass

    signal.signal(signal.SIGCHLD, mine)
    hear_how_children_end()
    assert signal.getsignal(signal.SIGCHLD) is mine


def told(connection):
    settle()
    answer(connection, signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL)


def test_processes_of_users_code_hear_it_too(ignored):
    """A program that calls the Python API keeps its own setting."""
    child = Child("probe", told)
    try:
        assert child.next_message(60) is True
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # so that the child can be reaped
        child.kill()
