"""The compiled launches: what a driver is given, which is a scripted one, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from bt_kernels import native

pytestmark = pytest.mark.skipif(
    native.why_not("launcher") is not None, reason=f"no helper in C: {native.why_not('launcher')}"
)

# Numbers stand for what a driver has handles of. The low byte of a function is its number of
# parameters, 8 and 4 bytes long in turn; bit 8 makes the first 16 bytes long. Everything is done on
# device 2, whose handle is 52, and its primary context 1052; 2052 is another context of it. Of
# device 9 the primary context cannot be had. Stream 13 has failed. Stream 21 is being captured, the
# capture of 22 has failed, and of 23 the driver cannot tell.
DRIVER = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#define HANDLE 52
static _Thread_local uintptr_t contexts[9];
static _Thread_local int num_contexts;
static _Thread_local int num_pushed;
static int num_retained[100], is_destroyed;
int depth(void) { return num_contexts; }
int context_at(int index) { return (int)contexts[index]; }
int pushed(void) { return num_pushed; }
int retained(int handle) { return num_retained[handle]; }
void destroy(void) { is_destroyed = 1; }
int cuCtxGetCurrent(uintptr_t *context) {
    *context = num_contexts ? contexts[num_contexts - 1] : 0;
    return 0;
}
int cuCtxGetDevice(int *handle) {
    if (!num_contexts) return 201;
    *handle = contexts[num_contexts - 1] % 1000;
    return 0;
}
int cuCtxPushCurrent_v2(uintptr_t context) {
    if (is_destroyed) return 709;
    contexts[num_contexts++] = context;
    num_pushed++;
    return 0;
}
int cuCtxPopCurrent_v2(uintptr_t *context) {
    if (!num_contexts) return 201;
    *context = contexts[--num_contexts];
    return 0;
}
int cuDeviceGet(int *handle, int index) { *handle = index + 50; return index < 0 ? 101 : 0; }
int cuDevicePrimaryCtxRetain(uintptr_t *context, int handle) {
    if (handle == 59) return 2;
    num_retained[handle]++;
    *context = 1000 + handle;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int handle) { num_retained[handle]--; return 0; }
static int outcome(void) {
    return !num_contexts ? 201 : contexts[num_contexts - 1] % 1000 != HANDLE ? 400 : 0;
}
static int outcome_on(void *stream) { return (uintptr_t)stream == 13 ? 719 : outcome(); }
int cuFuncGetParamInfo(uintptr_t function, size_t index, size_t *offset, size_t *size) {
    if (outcome()) return outcome();
    if (index >= (function & 0xff)) return 1;
    *offset = 8 * index;
    *size = function & 0x100 && !index ? 16 : index % 2 ? 4 : 8;
    return 0;
}
int cuLaunchKernel(uintptr_t function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned one, unsigned also, unsigned shared, void *stream, void **parameters,
                   void **extra) {
    if (outcome_on(stream)) return outcome_on(stream);
    if (!x || !y || !z) return 1;
    int num = function & 0xff, packed = extra && extra[0] == (void *)1 && extra[2] == (void *)2;
    if (packed && *(size_t *)extra[3] != (size_t)(8 * num - (num % 2 ? 0 : 4))) return 1;
    char line[5000]; /* threads take turns by lines */
    int end = sprintf(line, "launch %u %u %u, %u %u %u, %u, %zu:", x, y, z, threads, one, also,
                      shared, (size_t)stream);
    for (int i = 0; i < num; i++) {
        void *place = packed ? (char *)extra[1] + 8 * i : parameters[i];
        end += sprintf(line + end, " %lld", i % 2 ? *(int32_t *)place : *(long long *)place);
    }
    printf("%s%s\n", line, packed ? "" : ", not packed");
    fflush(stdout);
    return 0;
}
static int noted(const char *what, void *one, void *stream) {
    int outcome = outcome_on(stream);
    if (!outcome) printf("%s %zu, %zu\n", what, (size_t)one, (size_t)stream);
    fflush(stdout);
    return outcome;
}
int cuGraphLaunch(void *graph, void *stream) { return noted("replay", graph, stream); }
int cuEventRecord(void *event, void *stream) { return noted("record", event, stream); }
int cuStreamIsCapturing(void *stream, int *status) {
    uintptr_t number = (uintptr_t)stream;
    *status = number == 21 ? 1 : number == 22 ? 2 : 0;
    return number == 23 ? 906 : outcome();
}
int cuEventQuery(void *event) {
    if (outcome()) return outcome();
    return (uintptr_t)event == 5 ? 600 : (uintptr_t)event == 13 ? 719 : 0;
}
int cuEventSynchronize(void *event) { return noted("wait", event, NULL); }
int cuGetErrorString(int error, const char **text) {
    *text = error == 719 ? "it has failed" : NULL;
    return *text == NULL;
}
"""

SCRIPT = """
import ctypes, functools, importlib.util, sys, threading
spec = importlib.util.spec_from_file_location("launcher", sys.argv[1])
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)

class Tensor:
    def data_ptr(self):
        return 2**63 + 8

class Broken:
    def data_ptr(self):
        raise KeyError("no address")

@functools.cache
def device():
    return launcher.Device(2)

def make(function, num_arguments):
    return launcher.Launch(owner="kernel", function=function, device=device(), threads=128,
                           shared=16, num_arguments=num_arguments)

def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("taken", flush=True)

cuda = ctypes.CDLL("libcuda.so.1")

def contexts():
    return [cuda.context_at(index) for index in range(cuda.depth())]

def among(numbers, call, *arguments):
    "Calls in a thread with these contexts, and says if they are others afterwards."
    def run():
        for number in numbers:
            cuda.cuCtxPushCurrent_v2(ctypes.c_size_t(number))
        refused(call, *arguments)
        if contexts() != numbers:
            print("contexts are", contexts(), "and were", numbers)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""

# What torch does for tensors, for vectors of a test.
VECTORS = """
import struct
keep = []

class Vector:
    def __init__(self, size, bits, device=2):
        self.size = (ctypes.c_int64 * 1)(size)
        self.strides = (ctypes.c_int64 * 1)(1)
        self.bits, self.device = bits, device

@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
def look_at(vector, out):
    packed = struct.pack("@QiiiBBHQQQ", 4096, 2, vector.device, 1, 0, vector.bits, 1,
                         ctypes.addressof(vector.size), ctypes.addressof(vector.strides), 0)
    ctypes.memmove(out, packed, len(packed))
    return 0

stream = 11

@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_size_t))
def current_stream(kind, index, out):
    assert (kind, index) == (2, 2)
    out[0] = stream
    return 0

table = ctypes.create_string_buffer(struct.pack(
    "@IIQQQQQQ", 1, 0, 0, 0, 0, 0, *(ctypes.cast(f, ctypes.c_void_p).value
                                     for f in (look_at, current_stream))))
new = ctypes.pythonapi.PyCapsule_New
new.restype = ctypes.py_object
new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
Vector.__dlpack_c_exchange_api__ = new(ctypes.addressof(table), b"dlpack_exchange_api", None)

import array
spec = importlib.util.spec_from_file_location("staged", sys.argv[2])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
staged = module.StagedWrites([99], memoryview(bytearray(16)).cast("i", (1, 4)))

class Ring:
    "Of one buffer, in which the ids of an interval begin at 4096."
    meanwhile = staticmethod(lambda: None)
    def advance(self, size):
        print("advance", size)
        self.meanwhile()
        return memory[:size]
    def note_reader(self):
        print("note_reader")

memory = memoryview(bytearray(400)).cast("i")
CONSTANTS = dict(
    descriptors=77, first=2, single=1, few=2, many=2, few_apart=2, many_apart=2, none=0,
    max_num_reqs=4,
    max_num_tokens=8, widest=4, has_window=0, sharded=0, aligned=0, requests=1,
    requests_of_many=1, tokens=9, tokens_of_many=9, many_rows=9, span=9, max_spans=9,
    own_columns=99, wide_columns=9, max_chunks=1, max_wide_programs=1, words_written=64,
    block=8, max_pads=4, most_carried=99, begin=0)

def make_step(device_type=2, size=4, constants=CONSTANTS.values(), **options):
    given = dict(
        tensor_type=Vector, staged=staged, ring=Ring(), words=array.array("q", [0] * size),
        device_type=device_type, index=2, device=device(), widths=array.array("q", [99]),
        taken=array.array("Q"), constants=array.array("q", constants))
    return launcher.Step(**given | options)

class Tables:
    validate, _captured_writes, num_dirty_rows = False, None, 0
    _views_of_tables = _views_of_slots = staticmethod(lambda size: size)

    def __init__(self, step):
        self._quick = step

    def prepare_step(self, *_):
        return None

def step_once(step, *vectors):
    vectors = vectors or (Vector(1, 64), Vector(2, 32), Vector(3, 64))
    tables = Tables(step)
    print("step:", launcher.Calls(tables).prepare_step(*vectors, 1, 3), flush=True)
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """A folder with a driver that prints what it is asked for."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    target = folder / "libcuda.so.1"
    command = [*native._compiler(), "-shared", "-fPIC", str(folder / "driver.c"), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def printed(driver, code):
    """What the driver and a script print, in their order."""
    files = [native.load(name).__file__ for name in ("launcher", "staged")]
    # Unbuffered, or what Python prints would come after what the driver does.
    arguments = [sys.executable, "-u", "-c", SCRIPT + code, *files]
    environment = os.environ | {"LD_LIBRARY_PATH": str(driver)}
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_a_launch_has_the_arguments_in_their_order_and_nothing_for_none(driver):
    code = """
launch = make(5, 4)
launch(7, (3, 1, 1), (Tensor(), None, -2, 2**40, 2**31 - 1))
launch(7, (3, 2, 1), (1, 2, 3, 4))
import array
words = array.array("q", [-5, 6])
launch(8, (1, 1, 1), (1, 2), words)
launch(8, (1, 1, 1), (1, 2, 3, 4), array.array("q"))
make(6, 4)(8, (1, 1, 1), (1, 2, 3, 4))
make(80, 80)(8, (1, 1, 1), tuple(range(80)))
print(launcher.lacking())
"""
    assert printed(driver, code) == [
        # The fifth parameter is one of Triton's own, and null.
        f"launch 3 1 1, 128 1 1, 16, 7: {8 - 2**63} -2 {2**40} {2**31 - 1} 0",
        "launch 3 2 1, 128 1 1, 16, 7: 1 2 3 4 0",
        "launch 1 1 1, 128 1 1, 16, 8: 1 2 -5 6 0",
        "launch 1 1 1, 128 1 1, 16, 8: 1 2 3 4 0",
        "launch 1 1 1, 128 1 1, 16, 8: 1 2 3 4 0 0",
        # Only few that do not lie side by side are packed.
        f"launch 1 1 1, 128 1 1, 16, 8: {' '.join(map(str, range(80)))}, not packed",
        "None",
    ]


def test_launches_and_replays_are_counted(driver):
    """Counts those that the driver took, by any kernel on the same object."""
    code = """
on = launcher.Device(2)
launch, other = (launcher.Launch("kernel", n, on, 128, 16, n) for n in (3, 2))
assert on.launches == 0
launch(7, (1, 1, 1), (1, 2, 3))
other(7, (1, 1, 1), (1, 2))
on.replay(6, 12)
assert on.launches == 3
launch(7, (0, 1, 1), (1, 2, 3))
refused(launch, 13, (1, 1, 1), (1, 2, 3))
refused(on.replay, 6, 13)
refused(setattr, on, "launches", 7)
assert on.launches == 3 and launcher.Device(2).launches == 0
print("done")
"""
    assert printed(driver, code)[-1] == "done"


def test_an_empty_grid_launches_nothing(driver):
    """As by Triton's launcher; the driver would refuse it."""
    code = """
launch = make(3, 3)
for grid in (0, 1, 1), (3, 0, 1), (3, 1, 0), (1, 1, 1):
    refused(launch, 7, grid, (1, 2, 3))
"""
    taken = ["taken"] * 3
    assert printed(driver, code) == [*taken, "launch 1 1 1, 128 1 1, 16, 7: 1 2 3", "taken"]


def test_what_a_kernel_does_not_take_is_refused(driver):
    code = """
import array
launch = make(3, 3)
refused(launch, 7, (1, 1, 1), (1, 2))
refused(launch, 7, (1, 1, 1), (1, 2, 3, 4))
refused(launch, 7, (1, 1, 1), tuple(range(5000)))
refused(launch, 7, (1, 1, 1), (1, 2), array.array("q", range(5000)))
refused(launch, 7, (1, 1, 1), (1, 2), array.array("b", range(4)))
refused(launch, 7, (1, 1, 1), (1, 2, "three"))
refused(launch, 7, (1, 1, 1), (1, 2, Broken()))
refused(launch, 7, (1, 1, 1), (1, 2, 2**64))
refused(launch, 7, (1, 1), (1, 2, 3))
refused(launch, 7, [1, 1, 1], (1, 2, 3))
refused(launch, 7, (1, -1, 1), (1, 2, 3))
refused(launch, 7, (1, 1.0, 1), (1, 2, 3))
refused(launch, 7, (1, 1, 1))
refused(launch, None, (1, 1, 1), (1, 2, 3))
refused(launch, 13, (1, 1, 1), (1, 2, 3))
"""
    number = "arguments; expected 3 that are not None"
    usage = "TypeError: expected stream, grid (3 integers), arguments (a tuple), and perhaps"
    wanted = [
        *(f"TypeError: {given} {number}" for given in (2, 4, 5000, 5002, 2)),
        "AttributeError: 'str' object has no attribute 'data_ptr'",
        "KeyError: 'no address'",
        "OverflowError: ",
        *[usage] * 2,
        "OverflowError: ",
        "TypeError: ",
        usage,
        "TypeError: ",
        "RuntimeError: cuLaunchKernel: CUDA error 719: it has failed",
    ]
    found = printed(driver, code)
    assert len(found) == len(wanted)
    assert all(one.startswith(other) for one, other in zip(found, wanted, strict=True)), found


def test_what_the_binary_says_otherwise_is_refused(driver):
    code = """
make(5, 3), make(5, 5), make(0, 0)
refused(make, 5, 6)
refused(make, 5, -1)
refused(make, 0x105, 5)
refused(make, 5.0, 5)
"""
    expected = "the kernel has 5 parameters; expected"
    found = printed(driver, code)
    assert found[0] == f"ValueError: {expected} 6, and up to 2 of Triton's"
    assert found[1].startswith("ValueError: ")
    assert found[2] == "ValueError: parameter 0 has 16 bytes; expected 4 or 8"
    assert found[3].startswith("TypeError: ")
    assert len(found) == 4


# What is current in a thread: nothing, another device, also by a context that is no primary one and
# is below another, a context of the device that is no primary one, and the device.
CURRENT = "[[], [1051], [1052, 2051], [2052], [1052]]"


def test_whatever_is_current_it_is_done_on_the_device_and_stays_current(driver):
    code = f"""
for numbers in {CURRENT}:
    among(numbers, make, 1, 1)
    among(numbers, make(1, 1), 7, (1, 1, 1), (9,))
    among(numbers, device().record, 5, 12)
    among(numbers, device().replay, 6, 12)
    among(numbers, device().wait_for, 5)
"""
    done = [
        "taken",
        *("launch 1 1 1, 128 1 1, 16, 7: 9", "taken"),
        *("record 5, 12", "taken"),
        *("replay 6, 12", "taken"),
        *("wait 5, 0", "taken"),
    ]
    assert printed(driver, code) == done * 5


def test_what_is_current_stays_so_when_a_call_fails(driver):
    code = f"""
for numbers in {CURRENT}:
    among(numbers, make, 0x101, 1)
    among(numbers, make(1, 1), 13, (1, 1, 1), (9,))
    among(numbers, device().record, 5, 13)
    among(numbers, device().replay, 6, 13)
    among(numbers, device().wait_for, 13)
"""
    failed = [
        "ValueError: parameter 0 has 16 bytes; expected 4 or 8",
        *(
            f"RuntimeError: {call}: CUDA error 719: it has failed"
            for call in ("cuLaunchKernel", "cuEventRecord", "cuGraphLaunch", "cuEventSynchronize")
        ),
    ]
    assert printed(driver, code) == failed * 5


def test_a_step_is_made_on_its_device_whatever_is_current(driver):
    code = f"""
step = make_step()
step.add(0, 0, False, False, make(21, 21))
for numbers in {CURRENT}:
    among(numbers, step_once, step)
    staged.append(3, [[7]], True, False)
    stream = 13
    among(numbers, step_once, step)
    stream = 11
    print(bool(staged))
    among(numbers, step_once, step)
    print(bool(staged))
    staged.append(3, [[7, 8]], True, False)
    among(numbers, step_once, step)
    print(bool(staged))
    staged.clear()
    for one in range(3):
        among(numbers, step_once, step, *(Vector(3, bits, 1 if one == place else 2)
                                          for place, bits in enumerate((64, 32, 64))))
"""
    lines = printed(driver, VECTORS + code)
    head = "77 4096 4096 4096 0 0 0 8 2 1 1"
    last = f"0 {(3 << 48) + 7}"  # the third word
    done = [
        f"launch 2 1 1, 128 1 1, 16, 11: {head} 0 0 0 0 0 1 77 0 0 {lines[0].split()[-1]}",
        *("step: (1, 3)", "taken"),
        "RuntimeError: cuLaunchKernel: CUDA error 719: it has failed",
        "True",
        # A bit for row 3 in the bitmap, no table of the caller, and the interval.
        f"launch 3 1 1, 128 1 1, 16, 11: {head} 1 0 0 0 0 1 77 8 {last}",
        *("step: (1, 3)", "taken", "False"),
        # Several ids do not fit: the kernel for that is not loaded.
        *("step: None", "taken", "True"),
        # With a vector on another device, which Python code refuses.
        *("step: None", "taken") * 3,
    ]
    size = len(done)
    for turn in range(5):
        done[0] = lines[turn * size]  # its interval is what was there before
        assert done[0].rsplit(" ", 1)[0].endswith(f"{head} 0 0 0 0 0 1 77 0 0")
        assert lines[turn * size : (turn + 1) * size] == done
    assert len(lines) == 5 * size


def test_what_words_do_not_hold_goes_to_a_buffer(driver):
    code = """
step = make_step(size=4)
step.add(0, 3, False, False, make(22, 22))
step.add(0, 5, False, False, make(20, 20))
staged.append(1, [[5, 6]], True, False)
step_once(step)
print(memory[:4].tolist())
staged.append(1, [[5]], True, False)
staged.append(2, [[9]], True, False)
staged.append(0, [[]], True, False)
step_once(step)
print(memory[:6].tolist(), bool(staged))
memory = memory[:0]
staged.append(1, [[5, 6]], True, False)
refused(step_once, step)
print(bool(staged))
"""
    lines = printed(driver, VECTORS + code)
    # The ids of the only interval, which takes a multiple of four.
    assert lines[:1] + lines[2:5] == ["advance 4", "note_reader", "step: (1, 3)", "[5, 6, 0, 0]"]
    assert lines[1].startswith("launch 4 1 1, 128 1 1, 16, 11: 77 4096 4096 4096 0 0 0 8 2 1 1 1 1")
    assert lines[5] == "advance 8"
    assert lines[8] == "step: (1, 3)"
    assert lines[9] == f"[0, {-1 << 31}, 5, {1 << 16}, 9, {2 << 16}] False"
    assert lines[11].startswith("RuntimeError: what is staged has changed during the step")
    assert lines[12] == "True"


def test_what_runs_while_a_buffer_is_taken_does_no_harm(driver):
    code = """
ring = Ring()
step = make_step(size=4, ring=ring)
step.add(0, 3, False, False, make(22, 22))
ring.meanwhile = lambda: staged.append(2, [[9]], True, False)
staged.append(1, [[5, 6]], True, False)
refused(step_once, step)
print(len(staged.intervals()))
staged.clear()
ring.meanwhile = lambda: step.add(0, 3, False, False, make(1, 1))
staged.append(1, [[5, 6]], True, False)
step_once(step)
print(bool(staged))
"""
    lines = printed(driver, VECTORS + code)
    assert lines[:3] == [
        "advance 4",
        "RuntimeError: what is staged has changed during the step",
        "2",
    ]
    assert lines[3] == "advance 4"
    assert lines[4].startswith("launch 4 1 1, 128 1 1, 16, 11: 77 4096 4096")
    assert lines[5:] == ["note_reader", "step: (1, 3)", "False"]


def test_a_step_has_a_device_and_launches_for_it(driver):
    code = """
refused(lambda: make_step(device=None))
refused(lambda: make_step(device_type=1))
refused(lambda: make_step(device=launcher.Device(2)).add(0, 0, True, False, make(21, 21)))
refused(lambda: make_step().add(2, 0, True, False, None))
refused(lambda: make_step().add(0, 10, True, False, None))
refused(lambda: make_step(size=2))
refused(lambda: make_step(size=4078))
refused(lambda: make_step(constants=[1, 2]))
refused(lambda: make_step(constants=(CONSTANTS | dict(span=0)).values()))
refused(lambda: make_step(staged=None))
"""
    places = "shape is {} and kind {}; expected 0 to 1, and to 9"
    assert printed(driver, VECTORS + code) == [
        "TypeError: device is a NoneType; expected a Device",
        "TypeError: device is a launcher.Device; expected None",
        "ValueError: the launch has another Device than the step",
        f"ValueError: {places.format(2, 0)}",
        f"ValueError: {places.format(0, 10)}",
        *["ValueError: constants do not fit each other, or the words"] * 4,
        "AttributeError: 'NoneType' object has no attribute 'packing'",
    ]


def test_a_device_is_current_by_whatever_context_of_it(driver):
    code = f"""
for numbers in {CURRENT}:
    among(numbers, lambda: print(device().is_current()))
"""
    found = printed(driver, code)
    assert found[::2] == ["False", "False", "False", "True", "True"]
    assert found[1::2] == ["taken"] * 5


def test_a_stream_is_captured_whatever_is_current(driver):
    code = f"""
for numbers in {CURRENT}:
    among(numbers, lambda: print([device().is_captured(stream) for stream in (7, 21, 22)]))
    among(numbers, device().is_captured, 23)
refused(device().is_captured, None)
"""
    told = ["[False, True, True]", "taken"]
    failed = ["RuntimeError: cuStreamIsCapturing: CUDA error 906: unknown error"]
    assert printed(driver, code) == [*(told + failed) * 5, "TypeError: an integer is required"]


def test_nothing_is_pushed_where_the_device_is_current(driver):
    code = """
launch = make(1, 1)
def call_all():
    before = cuda.pushed()
    launch(7, (1, 1, 1), (9,))
    device().record(5, 12)
    device().replay(6, 12)
    device().wait_for(5)
    device().is_current()
    device().is_captured(7)
    print(cuda.pushed() - before)
among([1052], call_all)
among([2052], call_all)
among([1051], call_all)
"""
    lines = printed(driver, code)
    assert [line for line in lines if line.isdigit()] == ["0", "0", "5"]


def test_a_context_is_retained_as_long_as_something_needs_it(driver):
    code = """
print(cuda.retained(52))
launch = make(1, 1)
step = make_step()
device.cache_clear()
print(cuda.retained(52))
del step
print(cuda.retained(52))
del launch
print(cuda.retained(52))
refused(launcher.Device, 9)
refused(launcher.Device, -1)
print(contexts())
"""
    assert printed(driver, VECTORS + code) == [
        *"0110",
        "RuntimeError: cuDevicePrimaryCtxRetain: CUDA error 2: unknown error",
        "RuntimeError: cuDeviceGet: CUDA error 101: unknown error",
        "[]",
    ]


def test_a_context_that_is_gone_is_told(driver):
    code = """
launch = make(1, 1)
cuda.destroy()
refused(launch, 7, (1, 1, 1), (9,))
refused(device().push)
refused(device().pop)
"""
    assert printed(driver, code) == [
        "RuntimeError: cuCtxPushCurrent: CUDA error 709: unknown error",
        "RuntimeError: cuCtxPushCurrent: CUDA error 709: unknown error",
        "RuntimeError: cuCtxPopCurrent: CUDA error 201: unknown error",
    ]


def test_a_device_is_current_from_push_to_pop(driver):
    code = """
def run():
    device().push()
    print(contexts())
    device().pop()
among([1052, 2051], run)
"""
    assert printed(driver, code) == ["[1052, 2051, 1052]", "taken"]


def test_events_are_waited_for_only_if_they_have_not_come(driver):
    code = """
device().wait_for(4)
device().wait_for(5)
refused(device().record, 5, 13)
refused(device().replay, 5, 13)
refused(device().record, 5)
refused(device().wait_for, None)
"""
    assert printed(driver, code) == [
        "wait 5, 0",
        "RuntimeError: cuEventRecord: CUDA error 719: it has failed",
        "RuntimeError: cuGraphLaunch: CUDA error 719: it has failed",
        "TypeError: 1 arguments; expected 2",
        "TypeError: an integer is required",
    ]


def test_launches_at_once_have_arguments_of_their_own(driver):
    """A driver's call lets other threads run."""
    code = """
launch = make(2, 2)
def run(number):
    for _ in range(200):
        launch(number, (1, 1, 1), (number, -number))
threads = [threading.Thread(target=run, args=(number,)) for number in range(20, 24)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    lines = printed(driver, code)
    wanted = {f"launch 1 1 1, 128 1 1, 16, {n}: {n} {-n}" for n in range(20, 24)}
    assert (len(lines), set(lines)) == (800, wanted)


def test_a_driver_that_lacks_something_is_done_without(driver, tmp_path):
    text = DRIVER.replace("cuGraphLaunch(", "cuOtherLaunch(")
    (tmp_path / "driver.c").write_text(text)
    command = [*native._compiler(), "-shared", "-fPIC", str(tmp_path / "driver.c")]
    subprocess.run([*command, "-o", str(tmp_path / "libcuda.so.1")], check=True)
    code = "print(launcher.lacking()); refused(make, 1, 1)"
    assert printed(tmp_path, code) == [
        "cuGraphLaunch",
        "RuntimeError: the CUDA driver lacks: cuGraphLaunch",
    ]


# Host memory


def repeat(*arguments):
    native.load("launcher").repeat(*arguments)


def test_words_are_repeated_from_an_element_on():
    buffer = np.full(12, -1, dtype=np.int32)
    repeat(memoryview(buffer), 2, 2, (7, -(2**62)))
    words = [7, 0, 0, -(2**30)]
    assert buffer.tolist() == [-1, -1, *words, *words, -1, -1]
    repeat(memoryview(buffer), 12, 0, (7,))
    repeat(memoryview(buffer), 12, 5, ())
    repeat(memoryview(buffer), 4, 4, (1,))  # to the last element
    assert buffer.tolist() == [-1, -1, 7, 0, *[1, 0] * 4]


@pytest.mark.parametrize(
    ("first", "count", "words"),
    [
        (5, 4, (1,)),
        (0, 7, (1,)),
        (13, 0, (1,)),
        (2**61, 1, (1,)),
        (0, 2**60, (1, 2)),
        (2**62, 2**62, (1,)),
        (-1, 1, (1,)),
        (0, -1, (1,)),
        (0, 1, (1,) * 65),
    ],
)
def test_nothing_is_written_outside_of_the_view(first, count, words):
    buffer = np.full(12, -1, dtype=np.int32)
    with pytest.raises(ValueError, match=r"do not fit the view|too many words, or a place before"):
        repeat(memoryview(buffer), first, count, words)
    assert (buffer == -1).all()


def test_words_and_views_of_another_kind_are_refused():
    buffer = np.full(12, -1, dtype=np.int32)
    for words in ([1], None):
        with pytest.raises(TypeError, match="expected view, first, count, words"):
            repeat(memoryview(buffer), 0, 1, words)
    with pytest.raises(OverflowError):
        repeat(memoryview(buffer), 0, 1, (2**63,))
    with pytest.raises(TypeError):
        repeat(memoryview(buffer), 0, 1, (1.5,))
    with pytest.raises(BufferError):
        repeat(bytes(48), 0, 1, (1,))
    assert (buffer == -1).all()
