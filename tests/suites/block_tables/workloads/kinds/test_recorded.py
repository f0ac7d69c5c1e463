"""A recording of a stand-in runner gives the calls that the runner made, in sweeps and gates."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.commands import run
from support.recorded import record, write

from bt_bench.base.errors import UsageError
from bt_bench.config import load_config
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables.workloads.recorded.batches import TableImage
from bt_bench.suites.block_tables.workloads.recorded.file import RecordedFile
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_kernels.engines.recordings import Frame, Snapshot
from bt_kernels.layout import DUMMY_REQUESTS, SLIDING_WINDOW, TableLayout

LAYOUT = TableLayout((4, 8), (3, 2), max_num_reqs=4, max_num_batched_tokens=16)

CONFIG = """\
variants: [fused]
operations: [step]
plan: {{rounds: 1, warmup_rounds: 0, instances: 1}}
cases:
  - {{name: own, workload: recorded, file: {file}{more}}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded"), 60)


@pytest.fixture
def parameters(tmp_path):
    """Function that returns the parameters of a config's case; paths are relative to the config."""

    def load(file, more="", head=""):
        config = tmp_path / "own.yaml"
        config.write_text(head + CONFIG.format(file=file, more=more and f", {more}"))
        return load_config(str(config)).cases[0].parameters

    return load


def plain(append):
    return append.row, [list(ids) for ids in append.block_ids], append.overwrite


def assert_calls(workload, made, first=0):
    """Each step has the arguments that the runner passed, and the writes before it."""
    count = len(workload.steps)
    for step, batch in zip(workload.steps, made.batches[first : first + count], strict=True):
        assert step.idx_mapping.tolist() == batch["rows"]
        assert step.query_start_loc.tolist() == batch["starts"]
        assert step.positions.tolist() == batch["positions"]
        sizes = step.num_reqs_padded, step.num_tokens_padded
        assert sizes == (batch["reqs"], batch["tokens"])
        assert step.num_computed_tokens[batch["rows"]].tolist() == batch["computed"]
    writes = made.appends[first : first + count]
    assert [list(map(plain, step.appends)) for step in workload.steps] == writes


def test_all_calls_of_the_runner_are_in_the_workload(parameters, made):
    ours = parameters(made.path, "window: {steps: 1000}")
    workload = build_workload(ours)
    # As the processes of a gate get it.
    assert build_workload(pickle.loads(pickle.dumps(ours))).digest() == workload.digest()
    assert workload.layout == replace(made.layout, dcp_sharded=())
    assert workload.setup == ()
    assert len(workload.steps) == len(made.batches) > 30
    assert_calls(workload, made)
    appends = [plain(append) for step in workload.steps for append in step.appends]
    # Rows are used again, and blocks are shared by rows, as prefix hits are.
    assert len([row for row, _, overwrite in appends if overwrite]) > made.layout.max_num_reqs
    owners = {}
    for row, ids, _ in appends:
        for block in ids[1]:
            owners.setdefault(block, set()).add(row)
    assert max(map(len, owners.values())) > 1
    assert [ids for _, ids, _ in appends if ids[1] and not any(ids[1])]  # redirected writes


@pytest.mark.parametrize("at", [0, 7, "middle", "busiest"])
def test_a_window_begins_with_the_tables_of_its_time(parameters, made, at):
    parameters = parameters(made.path, f"window: {{at: {at}, steps: 5}}")
    workload = build_workload(parameters)
    tokens = [len(batch["positions"]) for batch in made.batches]
    named = {
        "middle": (len(tokens) - 5) // 2,
        "busiest": int(np.convolve(tokens, np.ones(5, int), "valid").argmax()),
    }
    first = named.get(at, at)
    assert_calls(workload, made, first)
    whole, window = TableImage(made.layout), TableImage(made.layout)
    for append in (append for appends in made.appends[:first] for append in appends):
        whole.write(Append(*append))
    for append in workload.setup:
        assert append.overwrite
        window.write(append)
    assert np.array_equal(whole.num_blocks, window.num_blocks)
    for row, group in np.argwhere(whole.num_blocks.T):
        count = whole.num_blocks[group, row]
        both = (image.tables[group][row, :count].tolist() for image in (whole, window))
        assert len(set(map(tuple, both))) == 1


def test_a_recording_that_ends_early_gives_a_shorter_window(parameters, made):
    last = len(made.batches) - 1
    workload = build_workload(parameters(made.path, f"window: {{at: {last}}}"))
    assert len(workload.steps) == 1
    late = parameters(made.path, f"window: {{at: {last + 1}}}")
    message = f"begins with step {last + 1}, but .* has {last + 1} steps with a gather and slots;"
    with pytest.raises(UsageError, match=message):
        late.check_by_reading()


def test_a_sweep_replays_the_recording(parameters, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traffic.btrec").write_bytes(made.path.read_bytes())
    workload = build_workload(parameters("traffic.btrec", "window: {steps: 2}"))
    assert_calls(workload, made)
    assert run("sweep", "own.yaml", "--out", "run").code == 0
    (case,) = json.loads((tmp_path / "run" / "fused.json").read_text())["cases"]
    assert case["workload"]["digest"] == workload.digest()
    # From elsewhere, with all that the file has set.
    again = load_config(str(tmp_path / "run" / "config.yaml")).cases[0].parameters
    assert build_workload(again).digest() == workload.digest()


@pytest.mark.slow
def test_a_gate_replays_the_recording(parameters, made, tmp_path):
    """The census of a static gate has the digest of each case's calls."""
    workload = build_workload(parameters(made.path, "window: {steps: 2}"))
    census = tmp_path / "census.json"
    config = tmp_path / "own.yaml"
    assert run("gate", "--static", "--config", config, "--save", census).code == 0
    (case,) = json.loads(census.read_text())["cases"]
    assert case["workload"] == workload.digest()


def test_features_are_known_before_it_is_built(parameters, made, tmp_path):
    ours = parameters(made.path)
    assert ours.features == build_workload(ours).features == {SLIDING_WINDOW, "disabled_groups"}
    frame = Frame()
    frame.gather(2, 2, np.array([1, -1]), False, None, None)
    frame.slots(2, 2, np.array([1, -1]), np.array([0, 1, 2]), firsts=np.array([0, 0]))
    ours = parameters(write(tmp_path / "dummies.btrec", LAYOUT, frame))
    assert ours.features == build_workload(ours).features == {DUMMY_REQUESTS}


def test_a_recording_may_begin_with_full_tables(parameters, tmp_path):
    frame = Frame()
    tables = tuple(np.arange(1, 4 * width + 1).reshape(4, width) for width in LAYOUT.widths)
    frame.snapshot(Snapshot(np.array([[2, 0, 0, 1], [1, 0, 0, 0]]), tables))
    frame.begin_step()
    frame.append(0, ([40], [41]), overwrite=False)
    frame.apply()
    frame.gather(1, 1, np.array([0]), False, None, None)
    frame.slots(1, 4, np.array([0]), np.array([0, 1]), firsts=np.array([9]))
    workload = build_workload(parameters(write(tmp_path / "full.btrec", LAYOUT, frame)))
    assert [*map(plain, workload.setup)] == [(0, [[1, 2], [1]], True), (3, [[10], []], True)]
    assert [*map(plain, workload.steps[0].appends)] == [(0, [[40], [41]], False)]


def test_calls_that_are_in_no_batch_are_left_out(parameters, made, tmp_path):
    """Drafts map slots once more, into slots of their own or with arguments on the GPU alone."""
    frame = Frame()
    rows, starts = np.array([2]), np.array([0, 1])
    frame.append(2, ([5], [6]), overwrite=True)
    frame.apply()
    frame.gather(1, 1, rows, False, None, None)
    frame.slots(1, 2, rows, starts, firsts=np.array([0]))
    frame.slots(1, 2, rows, starts, firsts=np.array([1]), out_columns=4)
    frame.gather(1, 1, None, False, None, None)
    frame.slots(1, 2, None, None)
    frame.slots(1, 2, rows, starts, firsts=np.array([2]))
    frame.dummy_tables(2)
    ours = parameters(write(tmp_path / "drafts.btrec", LAYOUT, frame))
    assert [step.positions.tolist() for step in build_workload(ours).steps] == [[0]]
    described = ours.describe()
    assert (described.requests_served, described.block_allocations) == (1, 2)
    assert described.recorded.left_out == {
        "gather_block_tables": 1,
        "compute_slot_mappings": 3,
        "get_dummy_block_tables": 1,
    }
    (document,) = run("workload", tmp_path / "own.yaml", "--json").json()["cases"]
    assert document["recorded"] == described.recorded.model_dump()
    text = " ".join(run("workload", tmp_path / "own.yaml").out.split())
    assert "window 'start' begins with step 0 of 1; left out: " in text
    assert "3 calls of compute_slot_mappings" in text


def frame_of(calls):
    frame = Frame()
    frame.begin_step()
    calls(frame)
    return frame


WRONG = {
    "append_block_ids has row 4; expected 0 to 3": lambda f: f.append(4, ([], []), True),
    "makes row 1 of group 1 3 blocks long; expected at most 2": lambda f: f.append(
        1, ([], [1, 2, 3]), True
    ),
    "gather_block_tables of 1 requests has num_reqs_padded 5; expected 1 to 4": lambda f: f.gather(
        1, 5, np.array([0]), False, None, None
    ),
    "compute_slot_mappings has num_tokens_padded 17; expected 0 to 16": lambda f: f.slots(
        1, 17, None, None
    ),
    "a query_start_loc that does not rise": lambda f: f.slots(
        1, 2, np.array([0]), np.array([0, 3]), firsts=np.array([0])
    ),
    "get_dummy_block_tables has num_reqs 5; expected 0 to 4": lambda f: f.dummy_tables(5),
    "get_dummy_slot_mappings has num_tokens 17; expected 0 to 16": lambda f: f.dummy_slots(17),
    "a snapshot has rows with more blocks than columns": lambda f: f.snapshot(
        Snapshot(np.full((2, 4), 9), tuple(np.zeros((4, width)) for width in LAYOUT.widths))
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_calls_that_the_tables_cannot_take_are_refused(parameters, tmp_path, message):
    path = write(tmp_path / "wrong.btrec", LAYOUT, Frame(), frame_of(WRONG[message]))
    with pytest.raises(UsageError) as error:
        parameters(path).check_by_reading()
    assert str(error.value).startswith(f"{path}: step 0: ")
    assert message in str(error.value)


def test_a_recording_without_a_batch_is_refused(parameters, tmp_path):
    frame = Frame()
    frame.dummy_tables(2)
    frame.gather(1, 1, None, False, None, None)
    for frames, reason in (
        ([], "Record an engine that serves"),
        ([frame], "1 call of get_dummy_block_tables apart and 1 call of gather_block_tables with"),
    ):
        ours = parameters(write(tmp_path / "none.btrec", LAYOUT, *frames))
        with pytest.raises(UsageError, match="has no batch") as error:
            ours.check_by_reading()
        assert reason in str(error.value)
    path = tmp_path / "none.btrec"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"has no batch: .*the last frame is incomplete"):
        parameters(path).check_by_reading()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("block_size: 16", "block_size is 16; .* was recorded with .4, 8.: leave it out"),
        ("max_num_reqs: 9", "max_num_reqs is 9; .* was recorded with 4: leave it out"),
        ("model: llama-3.1-70b", "model is given beside the recording"),
        ("kv_cache_config: tables.json", "kv_cache_config is given beside the recording"),
        ("pad_requests: true", "'pad_requests' is true; expected false"),
        ("custom_outputs: true", "'custom_outputs' is true; expected false"),
    ],
)
def test_the_recording_sets_the_tables(parameters, tmp_path, more, message):
    path = write(tmp_path / "any.btrec", LAYOUT)
    with pytest.raises(UsageError, match=rf"own.yaml:5:5: .*{message}"):
        parameters(path.name, more)


def test_the_recording_replaces_the_tables_of_the_defaults(parameters, tmp_path):
    head = "defaults: {groups: 3, block_size: 32, max_num_reqs: 99, max_model_len: 77, seed: 3}\n"
    ours = parameters(write(tmp_path / "any.btrec", LAYOUT).name, head=head)
    assert (ours.block_size, ours.max_num_reqs, ours.max_model_len) == ([4, 8], 4, 12)
    assert ours.seed == 3


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (TableLayout((), (), 4, 16), "have no groups, so there is nothing to measure"),
        (replace(LAYOUT, max_num_reqs=20_000), "byte 0: max_num_reqs: .* or equal to 16384"),
        (replace(LAYOUT, widths=(2**30, 1)), "byte 0: widths: .* or equal to 16777216"),
        (
            replace(LAYOUT, widths=(2**30, 1), max_num_reqs=32_767),
            "byte 0: the recorded tables take 262,136 GiB; expected at most 256",
        ),
    ],
)
def test_tables_that_no_workload_has_are_refused(parameters, tmp_path, layout, message):
    with pytest.raises(UsageError, match=message):
        parameters(write(tmp_path / "other.btrec", layout).name)


def test_files_that_are_no_recording_are_refused(parameters, made, tmp_path):
    data = made.path.read_bytes()
    line = data.index(b"\n")
    impossible = data[:line].replace(b'"cp_size": 1', b'"cp_size": 0')
    for content, message in (
        (b"", "byte 0: no recorded calls"),
        (b"hello\n", "byte 0: no recorded calls"),
        (impossible + data[line:], "byte 0: the recorded tables are wrong: cp_size is 0"),
        (data[:-50] + bytes(50), "byte .*: the checksum of a frame is"),
    ):
        (tmp_path / "x.btrec").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            parameters("x.btrec").check_by_reading()
    with pytest.raises(UsageError, match="nowhere: cannot be read: No such file"):
        parameters("nowhere")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="fifo is not a regular file; expected a recording"):
        parameters("fifo")


def test_a_last_frame_that_was_cut_off_is_left_out(parameters, made, tmp_path):
    (tmp_path / "cut.btrec").write_bytes(made.path.read_bytes() + bytes([8, 0, 0, 0, 1]))
    file = RecordedFile(tmp_path / "cut.btrec")
    steps = [step for step, _ in file.operations()]
    assert (steps[0], steps[-1]) == (0, 59)
    assert all(after - before in (0, 1) for before, after in pairwise(steps))
    assert "the last frame is incomplete (5 of 8 bytes)" in file.note
    workload = build_workload(parameters("cut.btrec", "window: {steps: 1000}"))
    assert_calls(workload, made)
