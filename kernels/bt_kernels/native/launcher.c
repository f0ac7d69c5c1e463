/* Launches and events by the CUDA driver, without the Python on the way to it.

   The driver is found when it is asked for, so that the module can be compiled and imported where
   there is none. Its functions are declared here: the headers of CUDA need not be installed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "packing.h"

#define MAX_PARAMETERS 2048
#define MAX_LEADING 64
#define ALIGNMENT 16 /* bytes */
#define MAX_WORDS 64
#define NUM_SCRATCH 2
#define NOT_READY 600
#define BUFFER_POINTER 1 /* CU_LAUNCH_PARAM_BUFFER_POINTER */
#define BUFFER_SIZE 2

typedef int Result;

static struct {
    Result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
    Result (*parameter)(void *, size_t, size_t *, size_t *);
    Result (*graph_launch)(void *, void *);
    Result (*is_capturing)(void *, int *);
    Result (*record)(void *, void *);
    Result (*query)(void *);
    Result (*synchronize)(void *);
    Result (*error_string)(Result, const char **);
    Result (*device)(int *, int);
    Result (*retain)(void **, int);
    Result (*release)(int);
    Result (*current_context)(void **);
    Result (*current_device)(int *);
    Result (*push)(void *);
    Result (*pop)(void **);
} driver;

static int found;

static const char *find_driver(void) {
    if (found) return NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return "libcuda.so.1";
    const struct {
        const char *name;
        void **place;
    } wanted[] = {
        {"cuLaunchKernel", (void **)&driver.launch},
        {"cuFuncGetParamInfo", (void **)&driver.parameter},
        {"cuStreamIsCapturing", (void **)&driver.is_capturing},
        {"cuGraphLaunch", (void **)&driver.graph_launch},
        {"cuEventRecord", (void **)&driver.record},
        {"cuEventQuery", (void **)&driver.query},
        {"cuEventSynchronize", (void **)&driver.synchronize},
        {"cuGetErrorString", (void **)&driver.error_string},
        {"cuDeviceGet", (void **)&driver.device},
        {"cuDevicePrimaryCtxRetain", (void **)&driver.retain},
        {"cuDevicePrimaryCtxRelease_v2", (void **)&driver.release},
        {"cuCtxGetCurrent", (void **)&driver.current_context},
        {"cuCtxGetDevice", (void **)&driver.current_device},
        {"cuCtxPushCurrent_v2", (void **)&driver.push},
        {"cuCtxPopCurrent_v2", (void **)&driver.pop},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        *wanted[i].place = dlsym(library, wanted[i].name);
        if (!*wanted[i].place) return wanted[i].name;
    }
    found = 1;
    return NULL;
}

static PyObject *fail(const char *what, Result result) {
    const char *text = NULL;
    if (driver.error_string(result, &text) || !text) text = "unknown error";
    return PyErr_Format(PyExc_RuntimeError, "%s: CUDA error %d: %s", what, result, text);
}

static int ready(void) {
    const char *missing = find_driver();
    if (missing) PyErr_Format(PyExc_RuntimeError, "the CUDA driver lacks: %s", missing);
    return !missing;
}

static void *address_of(PyObject *number) {
    return (void *)(uintptr_t)PyLong_AsUnsignedLongLong(number);
}

/* Device: a device by its primary context. Whatever is done for a device, by the objects below too,
   is done between `enter` and `leave`. */

typedef struct {
    PyObject_HEAD
    int number; /* as the driver has it */
    void *context; /* retained, and released with the object */
} Device;

/* Makes the device current for calls of the driver by this thread, unless it is. Another context of
   the device than its primary one stays: streams of a green context, whose default stream is not
   that of the primary one, are to be met in it. Returns -1 for an error. */
static int enter(const Device *self, int *pushed) {
    void *context = NULL;
    int number;
    *pushed = 0;
    Result result = driver.current_context(&context);
    if (result) {
        fail("cuCtxGetCurrent", result);
        return -1;
    }
    if (context == self->context ||
        (context && !driver.current_device(&number) && number == self->number))
        return 0;
    result = driver.push(self->context);
    if (result) {
        fail("cuCtxPushCurrent", result);
        return -1;
    }
    *pushed = 1;
    return 0;
}

/* Makes current again what was, if anything. Returns -1 for an error, or for one before it. */
static int leave(int pushed) {
    void *context;
    Result result = pushed ? driver.pop(&context) : 0;
    if (result && !PyErr_Occurred()) fail("cuCtxPopCurrent", result);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"index", NULL};
    int index, number;
    void *context;
    if (!PyArg_ParseTupleAndKeywords(args, names, "i", keywords, &index) || !ready()) return NULL;
    Result result = driver.device(&number, index);
    if (result) return fail("cuDeviceGet", result);
    result = driver.retain(&context, number);
    if (result) return fail("cuDevicePrimaryCtxRetain", result);
    Device *self = (Device *)type->tp_alloc(type, 0);
    if (!self) {
        driver.release(number);
        return NULL;
    }
    self->number = number;
    self->context = context;
    return (PyObject *)self;
}

static void device_dealloc(Device *self) {
    driver.release(self->number); /* fails where all contexts are gone by now */
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *device_push(Device *self, PyObject *unused) {
    (void)unused;
    Result result = driver.push(self->context);
    if (result) return fail("cuCtxPushCurrent", result);
    Py_RETURN_NONE;
}

static PyObject *device_pop(Device *self, PyObject *unused) {
    (void)self, (void)unused;
    void *context;
    Result result = driver.pop(&context);
    if (result) return fail("cuCtxPopCurrent", result);
    Py_RETURN_NONE;
}

/* Events and graphs, by the handles that torch made. */

static PyObject *device_record(Device *self, PyObject *const *args, Py_ssize_t num) {
    if (num != 2) return PyErr_Format(PyExc_TypeError, "%zd arguments; expected 2", num);
    void *event = address_of(args[0]), *stream = address_of(args[1]);
    int pushed;
    if (PyErr_Occurred() || enter(self, &pushed)) return NULL;
    Result result = driver.record(event, stream);
    if (result) fail("cuEventRecord", result);
    if (leave(pushed)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_replay(Device *self, PyObject *const *args, Py_ssize_t num) {
    if (num != 2) return PyErr_Format(PyExc_TypeError, "%zd arguments; expected 2", num);
    void *executable = address_of(args[0]), *stream = address_of(args[1]);
    int pushed;
    if (PyErr_Occurred() || enter(self, &pushed)) return NULL;
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.graph_launch(executable, stream);
    Py_END_ALLOW_THREADS
    if (result) fail("cuGraphLaunch", result);
    if (leave(pushed)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_wait_for(Device *self, PyObject *event) {
    void *address = address_of(event);
    int pushed;
    if (PyErr_Occurred() || enter(self, &pushed)) return NULL;
    Result result = driver.query(address);
    if (result == NOT_READY) {
        Py_BEGIN_ALLOW_THREADS
        result = driver.synchronize(address);
        Py_END_ALLOW_THREADS
    }
    if (result) fail("cuEventSynchronize", result);
    if (leave(pushed)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef device_methods[] = {
    {"record", (PyCFunction)(void (*)(void))device_record, METH_FASTCALL,
     "record(event, stream): enqueues an event."},
    {"replay", (PyCFunction)(void (*)(void))device_replay, METH_FASTCALL,
     "replay(executable, stream): launches a graph."},
    {"wait_for", (PyCFunction)device_wait_for, METH_O,
     "wait_for(event): waits until an event has been reached."},
    {"push", (PyCFunction)device_push, METH_NOARGS,
     "push(): makes the device current in this thread, until `pop` is called."},
    {"pop", (PyCFunction)device_pop, METH_NOARGS,
     "pop(): makes current again what was when `push` was called, whatever was set meanwhile."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject DeviceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Device",
    .tp_doc = "Device(index)\n\n"
              "A device, and its primary context, which it keeps. What its methods do is done on\n"
              "it, whatever is current in the thread, and leaves current what was.",
    .tp_basicsize = sizeof(Device),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = device_new,
    .tp_methods = device_methods,
    .tp_dealloc = (destructor)device_dealloc,
};

/* Launch: a kernel on a device, and how many parameters it has. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *owner; /* keeps the kernel loaded */
    PyObject *data_ptr;
    Device *device;
    void *function;
    unsigned threads, shared;
    Py_ssize_t num_arguments, num_parameters;
    Py_ssize_t side_by_side; /* arguments at the end, of 8 bytes each, with nothing between */
    /* Where parameters are in a buffer of all of them: those before, the first of these, the end. */
    uint16_t places[MAX_LEADING], sizes[MAX_LEADING];
    size_t first_place, size_of_all;
} Launch;

static int set_value(Launch *self, PyObject *argument, uint64_t *place) {
    PyObject *address = NULL;
    if (!PyLong_Check(argument)) {
        address = PyObject_CallMethodNoArgs(argument, self->data_ptr);
        if (!address) return -1;
        argument = address;
    }
    /* Of a value of 4 bytes the kernel takes the first 4, which are the low ones. */
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(argument, &overflow);
    *place = overflow ? PyLong_AsUnsignedLongLong(argument) : (uint64_t)value;
    Py_XDECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

/* Launches on the device, which has been entered, with a value for each argument. Returns -1 for an
   error. */
static int launch_now(Launch *self, const unsigned *grid, void *stream, const uint64_t *values) {
    void *parameters[MAX_PARAMETERS];
    uint64_t zero = 0, buffer[MAX_PARAMETERS + 1];
    void *packed[] = {(void *)BUFFER_POINTER, buffer, (void *)BUFFER_SIZE, &self->size_of_all, NULL};
    Py_ssize_t num_leading = self->num_arguments - self->side_by_side;
    int is_packed = num_leading <= MAX_LEADING;
    if (is_packed) {
        /* The driver takes one buffer in less time than the places of hundreds of values. */
        for (Py_ssize_t i = 0; i < num_leading; i++)
            memcpy((char *)buffer + self->places[i], &values[i], self->sizes[i]);
        size_t size = (size_t)self->side_by_side * sizeof(uint64_t);
        memcpy((char *)buffer + self->first_place, values + num_leading, size);
        size += self->first_place;
        memset((char *)buffer + size, 0, self->size_of_all - size); /* scratch memory: none */
    } else {
        for (Py_ssize_t i = 0; i < self->num_parameters; i++)
            parameters[i] = i < self->num_arguments ? (void *)&values[i] : &zero;
    }
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.launch(self->function, grid[0], grid[1], grid[2], self->threads, 1, 1,
                           self->shared, stream, is_packed ? NULL : parameters,
                           is_packed ? packed : NULL);
    Py_END_ALLOW_THREADS
    if (result) fail("cuLaunchKernel", result);
    return result ? -1 : 0;
}

static PyObject *launch_call(PyObject *object, PyObject *const *args, size_t nargsf,
                             PyObject *names) {
    Launch *self = (Launch *)object;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if ((nargs != 3 && nargs != 4) || names || !PyTuple_Check(args[1]) ||
        PyTuple_GET_SIZE(args[1]) != 3 || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "expected stream, grid (3 integers), arguments (a tuple), "
                                         "and perhaps a buffer of int64");
        return NULL;
    }
    void *stream = address_of(args[0]);
    unsigned grid[3];
    for (int i = 0; i < 3; i++)
        grid[i] = (unsigned)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(args[1], i));
    if (PyErr_Occurred()) return NULL;
    /* Not kept in the object: several threads may launch a kernel at once. */
    uint64_t values[MAX_PARAMETERS];
    Py_ssize_t given = PyTuple_GET_SIZE(args[2]), num = 0;
    for (Py_ssize_t i = 0; i < given; i++) {
        PyObject *argument = PyTuple_GET_ITEM(args[2], i);
        if (argument == Py_None) continue; /* the binary has no such parameter */
        if (num < self->num_arguments && set_value(self, argument, &values[num])) return NULL;
        num++;
    }
    if (nargs == 4) {
        Py_buffer words;
        if (PyObject_GetBuffer(args[3], &words, PyBUF_SIMPLE)) return NULL;
        Py_ssize_t more = words.len / (Py_ssize_t)sizeof(uint64_t);
        if (num + more <= self->num_arguments)
            memcpy(&values[num], words.buf, (size_t)more * sizeof(uint64_t));
        num += more;
        PyBuffer_Release(&words);
    }
    if (num != self->num_arguments)
        return PyErr_Format(PyExc_TypeError, "%zd arguments; expected %zd that are not None", num,
                            self->num_arguments);
    int pushed;
    if (enter(self->device, &pushed)) return NULL;
    launch_now(self, grid, stream, values);
    if (leave(pushed)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *launch_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"owner",   "function",      "device", "threads",
                               "shared",  "num_arguments", NULL};
    PyObject *owner, *function, *device;
    unsigned threads, shared;
    Py_ssize_t num_arguments;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO!O!IIn", keywords, &owner, &PyLong_Type,
                                     &function, &DeviceType, &device, &threads, &shared,
                                     &num_arguments))
        return NULL;
    void *address = address_of(function);
    if (PyErr_Occurred()) return NULL;
    /* How many parameters there are, and how long, is asked of the binary: beside its arguments
       Triton gives a kernel up to two addresses of scratch memory, null where it uses none. */
    Py_ssize_t count = 0, side_by_side = 0;
    size_t offset, size, before = 0, first_place = 0, size_of_all = 0;
    uint16_t places[MAX_LEADING], sizes[MAX_LEADING];
    /* Not one more is asked for: that would be an error, which compute-sanitizer counts. */
    Py_ssize_t most = num_arguments + NUM_SCRATCH < MAX_PARAMETERS ? num_arguments + NUM_SCRATCH
                                                                   : MAX_PARAMETERS;
    int pushed;
    if (enter((Device *)device, &pushed)) return NULL;
    while (count < most && !driver.parameter(address, (size_t)count, &offset, &size)) {
        if (count < num_arguments) {
            side_by_side = size != 8 ? 0 : offset == before + 8 ? side_by_side + 1 : 1;
            if (side_by_side < 2) first_place = size == 8 ? offset : offset + size;
            before = offset;
        }
        if (count < MAX_LEADING) {
            places[count] = (uint16_t)offset;
            sizes[count] = (uint16_t)size;
        }
        size_of_all = offset + size;
        if (size != 4 && size != 8) {
            PyErr_Format(PyExc_ValueError, "parameter %zd has %zu bytes; expected 4 or 8", count,
                         size);
            break;
        }
        count++;
    }
    if (leave(pushed)) return NULL;
    if (num_arguments < 0 || count < num_arguments)
        return PyErr_Format(PyExc_ValueError,
                            "the kernel has %zd parameters; expected %zd, and up to 2 of Triton's",
                            count, num_arguments);
    Launch *self = (Launch *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->call = launch_call;
    self->data_ptr = PyUnicode_InternFromString("data_ptr");
    self->owner = Py_NewRef(owner);
    self->device = (Device *)Py_NewRef(device);
    self->function = address;
    self->threads = threads;
    self->shared = shared;
    self->num_arguments = num_arguments;
    self->num_parameters = count;
    self->side_by_side = side_by_side;
    self->first_place = first_place;
    self->size_of_all = size_of_all;
    memcpy(self->places, places, sizeof(places));
    memcpy(self->sizes, sizes, sizeof(sizes));
    if (!self->data_ptr) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int launch_traverse(Launch *self, visitproc visit, void *arg) {
    Py_VISIT(self->owner);
    return 0;
}

static int launch_clear(Launch *self) {
    Py_CLEAR(self->owner);
    return 0;
}

static void launch_dealloc(Launch *self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->data_ptr);
    Py_CLEAR(self->device);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef launch_members[] = {
    {"side_by_side", T_PYSSIZET, offsetof(Launch, side_by_side), READONLY,
     "arguments at the end, of 8 bytes each, that lie side by side"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject LaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Launch",
    .tp_doc = "Launch(owner, function, device, threads, shared, num_arguments)\n\n"
              "A kernel on a `Device` that is called with stream, grid, and a tuple of arguments: integers,\n"
              "tensors, and None for what the binary has no parameter for. A buffer of int64 may\n"
              "follow, whose elements are the last arguments.",
    .tp_basicsize = sizeof(Launch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = launch_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launch, call),
    .tp_members = launch_members,
    .tp_traverse = (traverseproc)launch_traverse,
    .tp_clear = (inquiry)launch_clear,
    .tp_dealloc = (destructor)launch_dealloc,
};

/* Step: a whole step that carries its writes, from the check of its arguments to the launch. */

/* Of DLPack 1, by which torch shows tensors to C; see its dlpack.h. */
typedef struct {
    void *data;
    int32_t device_type, device_index, num_dimensions;
    uint8_t kind, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    uint32_t major, minor;
    void *before;
    void *allocate, *to_managed, *from_managed;
    int (*look_at)(void *, Tensor *);
    int (*current_stream)(int, int32_t, void **);
} Exchange;

#define DLPACK_MAJOR 1
#define DLPACK_CUDA 2
#define DLPACK_INT 0
#define DLPACK_UINT 1
#define NUM_SHAPES 2
#define NUM_KINDS 4

enum { FEW, MANY };
enum { SINGLE_IDS, ANY_IDS, IDS_IN_MEMORY, IN_MEMORY }; /* as in one_launch/carrying.py */

/* Constants of the tables, in the order in which `one_launch/native_step.py` gives them. */
typedef struct {
    long long descriptors, first, single_words, max_num_reqs, max_num_tokens, widest, has_window,
        sharded, aligned;
    long long requests[NUM_SHAPES], tokens[NUM_SHAPES]; /* of a program */
    long long many_rows, span, max_spans, own_columns, wide_columns, max_chunks, max_wide_programs,
        words_written, block, max_pads;
} Constants;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    const Exchange *exchange;
    PyTypeObject *tensor_type;
    PyObject *staged;
    const Packing *packing; /* its functions */
    PyObject *ring;              /* of buffers, for what does not fit */
    Device *device;              /* NULL in tests with tensors on the CPU */
    /* By shape, kind, whether there are options, and whether rows are aligned. */
    PyObject *launches[NUM_SHAPES][NUM_KINDS][2][2];
    Py_buffer words, widths, taken;
    Constants is;
    long long num_groups, num_taken;
    int device_type, device_index;
} Step;

/* A tensor of so many dimensions on the device, with elements of a row side by side. */
static int look_at(Step *self, PyObject *object, int dimensions, int bits, Tensor *tensor) {
    if (Py_TYPE(object) != self->tensor_type) return 0;
    if (self->exchange->look_at(object, tensor)) {
        PyErr_Clear(); /* Python code will say what is wrong, if anything is */
        return 0;
    }
    int last = dimensions - 1;
    return tensor->num_dimensions == dimensions && tensor->lanes == 1 &&
           (tensor->kind == DLPACK_INT || (tensor->kind == DLPACK_UINT && bits == 0)) &&
           (bits == 0 ? tensor->bits == 32 || tensor->bits == 64 : tensor->bits == bits) &&
           tensor->device_type == self->device_type &&
           tensor->device_index == self->device_index &&
           (tensor->shape[last] < 2 || tensor->strides[last] == 1);
}

static uint64_t address_in(const Tensor *tensor) {
    return (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
}

static long long at_most(long long limit, long long value) { return value < limit ? value : limit; }

static long long divided_up(long long value, long long by) { return (value + by - 1) / by; }

/* Arguments of the kernel before the words. */
enum {
    DESCRIPTORS, MAPPING, STARTS, POSITIONS, COMPUTED, SLOTS_OUT, SLOTS_STRIDE, NUM_SLOTS,
    INDEX_STEP, NUM_REQS, NUM_ROWS, NUM_WORDS, NUM_APART, NUM_SPANS, NUM_WIDE, NUM_CHUNKS,
    NUM_PADS, STAGING, NUM_LEADING,
};

/* A step whose arguments have been looked at. */
typedef struct {
    uint64_t leading[NUM_LEADING];
    int has_options, is_aligned, shape;
    long long num_tiles;
} Plan;

/* As `Shape.spans`. */
static long long spans_of(const Step *self, int shape, long long num_reqs, long long num_tokens) {
    long long more = self->is.tokens[shape] + 1;
    long long num_tiles = divided_up(num_reqs, self->is.requests[shape]);
    long long longer = at_most(num_tiles, num_tokens / more);
    return at_most(self->is.max_spans, longer + (num_tokens - longer * more) / self->is.span);
}

/* As `OneLaunch.cut_of`. */
static void cut(const Step *self, long long num_tokens, long long longest, Plan *plan) {
    const Constants *is = &self->is;
    uint64_t *leading = plan->leading;
    long long num_reqs = (long long)leading[NUM_REQS], num_rows = (long long)leading[NUM_ROWS];
    long long num_padded = num_rows - num_reqs;
    plan->shape = num_rows * self->num_groups > is->many_rows ? MANY : FEW;
    plan->num_tiles = divided_up(num_rows, is->requests[plan->shape]);
    leading[NUM_SPANS] = (uint64_t)spans_of(self, plan->shape, num_reqs, num_tokens);
    long long num_wide = longest > is->own_columns ? num_rows : num_padded;
    if (num_padded > 0 && longest < is->widest) longest = is->widest;
    if (!num_wide || longest <= is->own_columns) return;
    long long most = is->max_wide_programs / (num_wide * self->num_groups);
    long long num_chunks = divided_up(longest - is->own_columns, is->wide_columns);
    num_chunks = at_most(is->max_chunks, at_most(most < 1 ? 1 : most, num_chunks));
    leading[NUM_WIDE] = (uint64_t)num_wide;
    leading[NUM_CHUNKS] = (uint64_t)num_chunks;
}

/* As `pads_for`. */
static long long pads_of(const Step *self, long long num_slots) {
    long long found = at_most(self->is.max_pads, divided_up(num_slots, self->is.block));
    return found < 1 ? 1 : found;
}

/* Tables of the caller, whose addresses go to the words before the payload. 0 where Python code has
   to look at them. */
static int take_tables(Step *self, PyObject *out, PyObject *pointers, long long num_padded,
                       Plan *plan) {
    int64_t *targets = (int64_t *)self->words.buf + self->is.first - self->num_groups;
    if (out == Py_None) {
        memset(targets, 0, (size_t)self->num_groups * sizeof(int64_t));
        return pointers == Py_None;
    }
    if (!(PyList_CheckExact(out) || PyTuple_CheckExact(out)) ||
        PySequence_Fast_GET_SIZE(out) != self->num_groups)
        return 0;
    Tensor found;
    if (pointers != Py_None &&
        !(look_at(self, pointers, 1, 0, &found) && found.bits == 64 &&
          found.shape[0] == self->num_groups))
        return 0;
    const int64_t *widths = self->widths.buf;
    const uint64_t *taken = self->taken.buf;
    uint64_t ends[self->num_groups];
    for (Py_ssize_t group = 0; group < self->num_groups; group++) {
        if (!look_at(self, PySequence_Fast_GET_ITEM(out, group), 2, 32, &found) ||
            found.kind != DLPACK_INT || found.shape[1] != widths[group] ||
            found.shape[0] < num_padded || !found.shape[0] || !found.shape[1] ||
            (found.shape[0] > 1 && found.strides[0] != widths[group]))
            return 0;
        uint64_t begin = address_in(&found);
        uint64_t end = begin + (uint64_t)(found.shape[0] * found.shape[1]) * sizeof(int32_t);
        for (long long i = 0; i < self->num_taken; i++)
            if (begin < taken[2 * i + 1] && taken[2 * i] < end) return 0;
        for (Py_ssize_t i = 0; i < group; i++)
            if (begin < ends[i] && (uint64_t)targets[i] < end) return 0;
        targets[group] = (int64_t)begin;
        ends[group] = end;
        if (begin % ALIGNMENT) plan->is_aligned = 0;
    }
    plan->has_options = 1;
    return 1;
}

/* Computed tokens and slots of the caller, if there are any. */
static int take_options(Step *self, PyObject *computed, PyObject *slots, long long num_tokens,
                        Plan *plan) {
    uint64_t *leading = plan->leading;
    Tensor found;
    if (computed != Py_None) {
        if (!look_at(self, computed, 1, 32, &found) || found.shape[0] < self->is.max_num_reqs)
            return 0;
        if (self->is.has_window) {
            leading[COMPUTED] = address_in(&found);
            plan->has_options = 1;
        }
    }
    long long num_slots = self->is.max_num_tokens;
    if (slots != Py_None) {
        if (!look_at(self, slots, 2, 64, &found) || found.shape[0] != self->num_groups ||
            (found.shape[0] > 1 && found.strides[0] < found.shape[1]))
            return 0;
        num_slots = found.shape[1];
        leading[SLOTS_OUT] = address_in(&found);
        leading[SLOTS_STRIDE] = (uint64_t)found.strides[0];
        plan->has_options = 1;
    }
    leading[NUM_SLOTS] = (uint64_t)num_slots;
    leading[NUM_PADS] = (uint64_t)pads_of(self, num_slots);
    return num_tokens <= num_slots;
}

/* Looks at the arguments of a step. 1 if it can be launched, 0 where Python code has to handle it. */
static int plan_step(Step *self, PyObject *const *args, Plan *plan) {
    long long sizes[3]; /* num_reqs_padded, num_tokens_padded, num_dirty_rows */
    for (int i = 0; i < 3; i++) {
        int overflow = 0;
        if (!PyLong_CheckExact(args[3 + i])) return 0;
        sizes[i] = PyLong_AsLongLongAndOverflow(args[3 + i], &overflow);
        if (overflow || sizes[i] < 0) return 0;
    }
    Tensor mapping, starts, positions;
    if (!look_at(self, args[0], 1, 0, &mapping) || mapping.kind != DLPACK_INT ||
        !look_at(self, args[1], 1, 32, &starts) || !look_at(self, args[2], 1, 64, &positions))
        return 0;
    long long num_reqs = mapping.shape[0];
    if (num_reqs > sizes[0] || sizes[0] > self->is.max_num_reqs ||
        sizes[2] > self->is.max_num_reqs || starts.shape[0] <= num_reqs)
        return 0;
    plan->has_options = self->is.sharded != 0;
    plan->is_aligned = self->is.aligned != 0;
    if (!take_tables(self, args[7], args[8], sizes[0], plan) ||
        !take_options(self, args[6], args[9], sizes[1], plan))
        return 0;
    uint64_t *leading = plan->leading;
    /* Rows of the caller's tables after the padded batch are the caller's. */
    long long num_rows = args[7] == Py_None && sizes[2] > sizes[0] ? sizes[2] : sizes[0];
    leading[DESCRIPTORS] = leading[STAGING] = (uint64_t)self->is.descriptors;
    leading[MAPPING] = address_in(&mapping);
    leading[STARTS] = address_in(&starts);
    leading[POSITIONS] = address_in(&positions);
    leading[INDEX_STEP] = mapping.bits / 32;
    leading[NUM_REQS] = (uint64_t)num_reqs;
    leading[NUM_ROWS] = (uint64_t)num_rows;
    cut(self, positions.shape[0], self->packing->longest(self->staged), plan);
    return 1;
}

/* Launches by the driver; 0 where Python code has to handle it, -1 for an error. */
static int launch_step(Step *self, Launch *launch, int kind, void *stream, unsigned num_programs,
                       const uint64_t *leading) {
    uint64_t values[MAX_PARAMETERS];
    Py_ssize_t num_words = self->words.len / (Py_ssize_t)sizeof(uint64_t);
    if (kind == SINGLE_IDS || kind == IN_MEMORY)
        num_words = self->is.first + (kind == SINGLE_IDS ? self->is.single_words : 0);
    if (NUM_LEADING + num_words != launch->num_arguments) return 0;
    memcpy(values, leading, NUM_LEADING * sizeof(uint64_t));
    memcpy(values + NUM_LEADING, self->words.buf, (size_t)num_words * sizeof(uint64_t));
    unsigned grid[3] = {num_programs, 1, 1};
    return launch_now(launch, grid, stream, values) ? -1 : 1;
}

/* Stands in for the driver in tests. */
static int launch_by_python(PyObject *launch, unsigned num_programs, const uint64_t *leading) {
    PyObject *values = PyTuple_New(NUM_LEADING), *found = NULL;
    for (Py_ssize_t i = 0; values && i < NUM_LEADING; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(leading[i]);
        if (value)
            PyTuple_SET_ITEM(values, i, value);
        else
            Py_CLEAR(values);
    }
    if (values) found = PyObject_CallFunction(launch, "IN", num_programs, values);
    Py_XDECREF(found);
    return found ? 1 : -1;
}

/* 1 if the device's current stream is being captured, or nothing is known of it. */
static int find_stream(Step *self, void **stream) {
    int status = 1;
    *stream = NULL;
    if (!self->device) return 0;
    if (self->exchange->current_stream(self->device_type, self->device_index, stream)) {
        PyErr_Clear();
        return 1;
    }
    return driver.is_capturing(*stream, &status) || status;
}

/* Packs what is staged into a buffer that the device has read, but for intervals that are carried;
   returns where that is, 0 for an error. */
static uint64_t pack_in_memory(Step *self, int kind, Room *room, Packed *packed) {
    int is_apart = kind == IDS_IN_MEMORY;
    long long size = packed->size - (is_apart ? packed->num_words : 0);
    PyObject *view = PyObject_CallMethod(self->ring, "advance", "L", 2 * size);
    Py_buffer buffer;
    if (!view || PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)) {
        Py_XDECREF(view);
        return 0;
    }
    if (is_apart) {
        room->ids = buffer.buf;
        room->ids_room = size;
    } else {
        room->payload = buffer.buf;
        room->payload_room = size;
    }
    int fits = buffer.len >= 8 * size && self->packing->pack(self->staged, room, packed);
    uint64_t address = (uint64_t)(uintptr_t)buffer.buf; /* the same one for the device */
    PyBuffer_Release(&buffer);
    Py_DECREF(view);
    if (fits) return address;
    PyErr_SetString(PyExc_RuntimeError, "what is staged has changed, or a buffer is too short");
    return 0;
}

/* 1 if a planned step is launched, 0 where Python code has to handle it, -1 for an error. */
static int pack_and_launch(Step *self, Plan *plan) {
    void *stream;
    Packed packed;
    if (find_stream(self, &stream)) return 0;
    uint64_t *words = self->words.buf;
    long long most = self->words.len / (long long)sizeof(uint64_t) - self->is.first;
    Room room = {words, words + self->is.first, most, NULL, 0};
    if (!self->packing->pack(self->staged, &room, &packed)) return 0;
    int kind = packed.num_words > most ? IN_MEMORY : packed.size > most ? IDS_IN_MEMORY : ANY_IDS;
    if (packed.size <= self->is.single_words && packed.num_apart == 0) kind = SINGLE_IDS;
    PyObject *launch = self->launches[plan->shape][kind][plan->has_options][plan->is_aligned];
    if (!launch) return 0;
    uint64_t *leading = plan->leading;
    int in_memory = kind == IDS_IN_MEMORY || kind == IN_MEMORY;
    if (in_memory && !(leading[STAGING] = pack_in_memory(self, kind, &room, &packed)))
        return -1;
    leading[NUM_WORDS] = (uint64_t)packed.num_words;
    leading[NUM_APART] = (uint64_t)packed.num_apart;
    uint64_t in_group = leading[NUM_SPANS] + (uint64_t)plan->num_tiles +
                        leading[NUM_WIDE] * leading[NUM_CHUNKS] + leading[NUM_PADS];
    long long num_writers =
        divided_up(packed.num_words, self->is.words_written) + packed.num_apart;
    unsigned num_programs = (unsigned)((uint64_t)num_writers + (uint64_t)self->num_groups * in_group);
    Py_INCREF(launch);
    int done = Py_TYPE(launch) == &LaunchType
                   ? launch_step(self, (Launch *)launch, kind, stream, num_programs, leading)
                   : launch_by_python(launch, num_programs, leading);
    Py_DECREF(launch);
    if (done == 1) self->packing->clear(self->staged);
    if (done == 1 && in_memory) {
        PyObject *noted = PyObject_CallMethod(self->ring, "note_reader", NULL);
        if (!noted) return -1;
        Py_DECREF(noted);
    }
    return done;
}

static PyObject *step_call(PyObject *object, PyObject *const *args, size_t nargsf,
                           PyObject *names) {
    Step *self = (Step *)object;
    if (PyVectorcall_NARGS(nargsf) != 10 || names) {
        PyErr_SetString(PyExc_TypeError, "expected 10 arguments");
        return NULL;
    }
    Plan plan = {0};
    int done = plan_step(self, args, &plan), pushed = 0;
    if (done == 1) {
        if (self->device && enter(self->device, &pushed)) return NULL;
        done = pack_and_launch(self, &plan);
        if (leave(pushed)) return NULL;
    }
    if (done < 0) return NULL;
    if (!done) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(plan.leading[NUM_REQS]);
}

static PyObject **launch_of(Step *self, int number) {
    int kinds = number / 4;
    return &self->launches[kinds / NUM_KINDS][kinds % NUM_KINDS][number / 2 % 2][number % 2];
}

static int step_clear(Step *self) {
    Py_CLEAR(self->staged);
    Py_CLEAR(self->ring);
    Py_CLEAR(self->device);
    Py_CLEAR(self->tensor_type);
    for (int i = 0; i < NUM_SHAPES * NUM_KINDS * 4; i++) Py_CLEAR(*launch_of(self, i));
    return 0;
}

static int step_traverse(Step *self, visitproc visit, void *arg) {
    Py_VISIT(self->staged);
    Py_VISIT(self->ring);
    Py_VISIT(self->tensor_type);
    for (int i = 0; i < NUM_SHAPES * NUM_KINDS * 4; i++) Py_VISIT(*launch_of(self, i));
    return 0;
}

static void step_dealloc(Step *self) {
    PyObject_GC_UnTrack(self);
    step_clear(self);
    if (self->words.obj) PyBuffer_Release(&self->words);
    if (self->widths.obj) PyBuffer_Release(&self->widths);
    if (self->taken.obj) PyBuffer_Release(&self->taken);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Finds the functions of what is staged. -1 for an error. */
static int find_packing(Step *self, PyObject *staged) {
    PyObject *capsule = PyObject_GetAttrString(staged, "packing");
    if (!capsule) return -1;
    self->packing = PyCapsule_GetPointer(capsule, PACKING); /* lives as long as its module */
    Py_DECREF(capsule);
    return self->packing ? 0 : -1;
}

/* Finds how torch shows its tensors. -1 for an error. */
static int find_exchange(Step *self, PyTypeObject *tensor_type) {
    PyObject *capsule =
        PyObject_GetAttrString((PyObject *)tensor_type, "__dlpack_c_exchange_api__");
    if (!capsule) return -1;
    /* It lives as long as the process. */
    const Exchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    if (!found) return -1;
    if (found->major != DLPACK_MAJOR || !found->look_at || !found->current_stream) {
        PyErr_Format(PyExc_ValueError, "DLPack %u.%u; expected %d with a quick look at tensors",
                     found->major, found->minor, DLPACK_MAJOR);
        return -1;
    }
    self->exchange = found;
    return 0;
}

static int are_possible(const Constants *is) {
    int possible = is->span > 0 && is->wide_columns > 0 && is->words_written > 0 && is->block > 0;
    for (int shape = 0; shape < NUM_SHAPES; shape++)
        possible = possible && is->requests[shape] > 0 && is->tokens[shape] >= 0;
    return possible;
}

/* Takes the numbers that the tables and kernels have. -1 for an error. */
static int take_constants(Step *self, PyObject *constants) {
    Py_buffer view;
    if (PyObject_GetBuffer(constants, &view, PyBUF_SIMPLE)) return -1;
    int fits = view.len == (Py_ssize_t)sizeof(Constants);
    if (fits) memcpy(&self->is, view.buf, sizeof(Constants));
    PyBuffer_Release(&view);
    long long num_words = self->words.len / (long long)sizeof(uint64_t);
    self->num_groups = self->widths.len / (long long)sizeof(int64_t);
    self->num_taken = self->taken.len / (long long)(2 * sizeof(uint64_t));
    if (fits && are_possible(&self->is) && self->num_groups > 0 &&
        self->is.first >= self->num_groups && self->is.single_words >= 0 &&
        num_words >= self->is.first + self->is.single_words &&
        NUM_LEADING + num_words < MAX_PARAMETERS)
        return 0;
    PyErr_SetString(PyExc_ValueError, "constants do not fit each other, or the words");
    return -1;
}

static PyObject *step_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"tensor_type", "staged", "ring",   "words", "device_type",
                               "index",       "device", "widths", "taken", "constants", NULL};
    PyTypeObject *tensor_type;
    PyObject *staged, *ring, *words, *device, *widths, *taken, *constants;
    int device_type, device_index;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O!OOOiiOOOO", keywords, &PyType_Type,
                                     &tensor_type, &staged, &ring, &words, &device_type,
                                     &device_index, &device, &widths, &taken, &constants))
        return NULL;
    int on_cuda = device_type == DLPACK_CUDA;
    if (on_cuda ? Py_TYPE(device) != &DeviceType : device != Py_None)
        return PyErr_Format(PyExc_TypeError, "device is a %s; expected %s",
                            Py_TYPE(device)->tp_name, on_cuda ? "a Device" : "None");
    Step *self = (Step *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->call = step_call;
    self->tensor_type = (PyTypeObject *)Py_NewRef(tensor_type);
    self->staged = Py_NewRef(staged);
    self->ring = Py_NewRef(ring);
    self->device = on_cuda ? (Device *)Py_NewRef(device) : NULL;
    self->device_type = device_type;
    self->device_index = device_index;
    if (find_packing(self, staged) || find_exchange(self, tensor_type) ||
        PyObject_GetBuffer(words, &self->words, PyBUF_WRITABLE) ||
        PyObject_GetBuffer(widths, &self->widths, PyBUF_SIMPLE) ||
        PyObject_GetBuffer(taken, &self->taken, PyBUF_SIMPLE) || take_constants(self, constants)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *step_add(Step *self, PyObject *args) {
    int shape, kind, has_options, is_aligned;
    PyObject *launch;
    if (!PyArg_ParseTuple(args, "iippO", &shape, &kind, &has_options, &is_aligned, &launch))
        return NULL;
    if (shape < 0 || shape >= NUM_SHAPES || kind < 0 || kind >= NUM_KINDS)
        return PyErr_Format(PyExc_ValueError, "shape is %d and kind %d; expected 0 to 1, and to 3",
                            shape, kind);
    if (Py_TYPE(launch) == &LaunchType && ((Launch *)launch)->device != self->device) {
        PyErr_SetString(PyExc_ValueError, "the launch has another Device than the step");
        return NULL;
    }
    PyObject **place = &self->launches[shape][kind][has_options][is_aligned];
    Py_XSETREF(*place, Py_NewRef(launch));
    Py_RETURN_NONE;
}

static PyMethodDef step_methods[] = {
    {"add", (PyCFunction)step_add, METH_VARARGS,
     "add(shape, kind, has_options, is_aligned, launch): what launches steps of a shape (0 few, 1\n"
     "many) and kind (0 single ids, 1 any, 2 ids in memory, 3 all in memory)."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Step",
    .tp_doc = "A whole step that carries its writes. Called with idx_mapping, query_start_loc,\n"
              "positions, num_reqs_padded, num_tokens_padded, num_dirty_rows,\n"
              "num_computed_tokens, out, out_ptrs and slots_out. Returns the number of requests,\n"
              "once it is launched; None, with nothing done, where Python code has to handle it:\n"
              "arguments that are refused, a kernel that is not loaded, a capture.",
    .tp_basicsize = sizeof(Step),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = step_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Step, call),
    .tp_methods = step_methods,
    .tp_traverse = (traverseproc)step_traverse,
    .tp_clear = (inquiry)step_clear,
    .tp_dealloc = (destructor)step_dealloc,
};

/* Host memory. */

static PyObject *repeat(PyObject *module, PyObject *const *args, Py_ssize_t num) {
    (void)module;
    if (num != 4 || !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "expected view, first, count, words (a tuple)");
        return NULL;
    }
    Py_ssize_t first = PyLong_AsSsize_t(args[1]), count = PyLong_AsSsize_t(args[2]);
    Py_ssize_t length = PyTuple_GET_SIZE(args[3]);
    int64_t words[MAX_WORDS];
    if (PyErr_Occurred()) return NULL;
    if (length > MAX_WORDS || first < 0 || count < 0) {
        PyErr_SetString(PyExc_ValueError, "too many words, or a place before the view");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < length; i++)
        words[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(args[3], i));
    if (PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE)) return NULL;
    size_t size = (size_t)length * sizeof(int64_t);
    /* Divided, since a product may not fit. */
    Py_ssize_t room = view.len / 4 - first;
    int fits = room >= 0 && (!size || count <= room / (Py_ssize_t)(size / 4));
    char *place = (char *)view.buf + (fits ? first * 4 : 0);
    for (Py_ssize_t i = 0; fits && i < count; i++, place += size) memcpy(place, words, size);
    PyBuffer_Release(&view);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the words do not fit the view");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *lacking(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const char *missing = find_driver();
    if (missing) return PyUnicode_FromString(missing);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"repeat", (PyCFunction)(void (*)(void))repeat, METH_FASTCALL,
     "repeat(view, first, count, words): writes int64 words so many times, side by side, from an\n"
     "element of an int32 view on."},
    {"lacking", lacking, METH_NOARGS, "lacking(): what of the CUDA driver is missing, or None."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    return PyModule_AddType(module, &DeviceType) || PyModule_AddType(module, &LaunchType) ||
                   PyModule_AddType(module, &StepType)
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* static types */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "launcher",
    .m_doc = "Launches and events by the CUDA driver.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_launcher(void) { return PyModuleDef_Init(&definition); }
