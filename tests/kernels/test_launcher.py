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
# parameters, 8 and 4 bytes long in turn; bit 8 makes the first 16 bytes long. A function with bit
# 9, and whatever is on stream 12, needs a context. Stream 13 has failed.
DRIVER = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
static _Thread_local int has_context;
static int outcome_on(void *stream) {
    uintptr_t number = (uintptr_t)stream;
    return number == 13 ? 719 : number == 12 && !has_context ? 201 : 0;
}
int cuFuncGetParamInfo(uintptr_t function, size_t index, size_t *offset, size_t *size) {
    if (index >= (function & 0xff)) return 1;
    *offset = 8 * index;
    *size = function & 0x100 && !index ? 16 : index % 2 ? 4 : 8;
    return 0;
}
int cuLaunchKernel(uintptr_t function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned one, unsigned also, unsigned shared, void *stream, void **parameters,
                   void **extra) {
    if (function & 0x200 && !has_context) return 201;
    if (outcome_on(stream)) return outcome_on(stream);
    char line[500]; /* threads take turns by lines */
    int end = sprintf(line, "launch %u %u %u, %u %u %u, %u, %zu:", x, y, z, threads, one, also,
                      shared, (size_t)stream);
    for (size_t i = 0; i < (function & 0xff); i++)
        end += sprintf(line + end, " %lld",
                       i % 2 ? *(int32_t *)parameters[i] : *(long long *)parameters[i]);
    printf("%s%s\n", line, extra ? ", extra" : "");
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
int cuStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }
int cuEventQuery(void *event) { return (uintptr_t)event == 5 ? 600 : 0; }
int cuEventSynchronize(void *event) { return noted("wait", event, NULL); }
int cuGetErrorString(int error, const char **text) {
    *text = error == 719 ? "it has failed" : NULL;
    return *text == NULL;
}
int cuDeviceGet(int *device, int number) { *device = number + 50; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    printf("context of %d\n", device);
    *context = &has_context;
    return 0;
}
int cuCtxSetCurrent(void *context) { has_context = context == &has_context; return 0; }
"""

SCRIPT = """
import importlib.util, sys, threading
spec = importlib.util.spec_from_file_location("launcher", sys.argv[1])
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)

class Tensor:
    def data_ptr(self):
        return 2**63 + 8

class Broken:
    def data_ptr(self):
        raise KeyError("no address")

def make(function, num_arguments):
    return launcher.Launch(owner="kernel", function=function, device=2, threads=128, shared=16,
                           num_arguments=num_arguments)

def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("taken", flush=True)
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
    arguments = [sys.executable, "-c", SCRIPT + code, native.load("launcher").__file__]
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
print(launcher.lacking())
"""
    assert printed(driver, code) == [
        # The fifth parameter is one of Triton's own, and null.
        f"launch 3 1 1, 128 1 1, 16, 7: {8 - 2**63} -2 {2**40} {2**31 - 1} 0",
        "launch 3 2 1, 128 1 1, 16, 7: 1 2 3 4 0",
        "launch 1 1 1, 128 1 1, 16, 8: 1 2 -5 6 0",
        "launch 1 1 1, 128 1 1, 16, 8: 1 2 3 4 0",
        "None",
    ]


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


def test_a_thread_that_has_not_used_the_device_is_given_its_context(driver):
    code = """
def run(call, *arguments):
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    thread.join()

launch = make(0x201, 1)
run(launch, 7, (1, 1, 1), (9,))
run(launcher.record, 5, 12, 2)
run(launcher.replay, 6, 12, 2)
launcher.record(5, 11, 2)
"""
    assert printed(driver, code) == [
        *("context of 52", "launch 1 1 1, 128 1 1, 16, 7: 9"),
        *("context of 52", "record 5, 12"),
        *("context of 52", "replay 6, 12"),
        "record 5, 11",
    ]


def test_events_are_waited_for_only_if_they_have_not_come(driver):
    code = """
launcher.wait_for(4)
launcher.wait_for(5)
refused(launcher.record, 5, 13, 0)
refused(launcher.replay, 5, 13, 0)
refused(launcher.record, 5)
refused(launcher.wait_for, None)
"""
    assert printed(driver, code) == [
        "wait 5, 0",
        "RuntimeError: cuEventRecord: CUDA error 719: it has failed",
        "RuntimeError: cuGraphLaunch: CUDA error 719: it has failed",
        "TypeError: 1 arguments; expected 3",
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
