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

#define MAX_PARAMETERS 2048
#define MAX_WORDS 64
#define NUM_SCRATCH 2
#define NOT_READY 600

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

/* Launches on the device, which has been entered. Returns -1 for an error. */
static int launch_now(Launch *self, const unsigned *grid, void *stream, void **parameters) {
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.launch(self->function, grid[0], grid[1], grid[2], self->threads, 1, 1,
                           self->shared, stream, parameters, NULL);
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
    void *parameters[MAX_PARAMETERS];
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
    for (; num < self->num_parameters; num++) values[num] = 0;
    for (Py_ssize_t i = 0; i < num; i++) parameters[i] = &values[i];
    int pushed;
    if (enter(self->device, &pushed)) return NULL;
    launch_now(self, grid, stream, parameters);
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
    size_t offset, size, before = 0;
    /* Not one more is asked for: that would be an error, which compute-sanitizer counts. */
    Py_ssize_t most = num_arguments + NUM_SCRATCH < MAX_PARAMETERS ? num_arguments + NUM_SCRATCH
                                                                   : MAX_PARAMETERS;
    int pushed;
    if (enter((Device *)device, &pushed)) return NULL;
    while (count < most && !driver.parameter(address, (size_t)count, &offset, &size)) {
        if (count < num_arguments) {
            side_by_side = size != 8 ? 0 : offset == before + 8 ? side_by_side + 1 : 1;
            before = offset;
        }
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

/* Step: a whole step whose writes are parameters, from the check of its arguments to the launch. */

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
#define NUM_SHAPES 2

enum { FEW, MANY };

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    const Exchange *exchange;
    PyTypeObject *tensor_type;
    PyObject *pack;                 /* fills `words`, and says how many intervals have several ids */
    PyObject *words_object, *slots; /* its arguments */
    Device *device;                 /* NULL in tests with tensors on the CPU */
    /* By shape, whether the mapping is int64, and whether intervals have several ids. */
    PyObject *launches[NUM_SHAPES][2][2];
    Py_buffer words; /* one for each slot, and then ids */
    Py_ssize_t num_words;
    unsigned long long descriptors;
    int device_type, device_index;
    long long num_groups, max_num_reqs, max_num_tokens, num_pads, widest;
    long long requests[NUM_SHAPES], tokens[NUM_SHAPES]; /* of a program */
    long long many_rows, span, max_spans, own_columns, wide_columns, max_chunks, max_wide_programs;
} Step;

/* A contiguous vector on the device. */
static int look_at(Step *self, PyObject *object, int bits, Tensor *tensor) {
    if (Py_TYPE(object) != self->tensor_type) return 0;
    if (self->exchange->look_at(object, tensor)) {
        PyErr_Clear(); /* Python code will say what is wrong, if anything is */
        return 0;
    }
    return tensor->num_dimensions == 1 && tensor->kind == DLPACK_INT && tensor->lanes == 1 &&
           (bits == 0 ? tensor->bits == 32 || tensor->bits == 64 : tensor->bits == bits) &&
           tensor->device_type == self->device_type &&
           tensor->device_index == self->device_index &&
           (tensor->shape[0] < 2 || tensor->strides[0] == 1);
}

static uint64_t address_in(const Tensor *tensor) {
    return (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
}

/* How a step is cut into programs, of each group; see `Cut` of one_launch/shapes.py. */
typedef struct {
    int shape;
    long long num_tiles, num_spans, num_wide, num_chunks;
} Cut;

static long long at_most(long long limit, long long value) { return value < limit ? value : limit; }

static long long divided_up(long long value, long long by) { return (value + by - 1) / by; }

/* As `Shape.spans`. */
static long long spans_of(const Step *self, int shape, long long num_reqs, long long num_tokens) {
    long long more = self->tokens[shape] + 1;
    long long longer = at_most(divided_up(num_reqs, self->requests[shape]), num_tokens / more);
    return at_most(self->max_spans, longer + (num_tokens - longer * more) / self->span);
}

/* As `OneLaunch._cut`. */
static Cut cut(const Step *self, long long num_reqs, long long num_rows, long long num_tokens,
               long long longest) {
    Cut found = {.shape = num_rows * self->num_groups > self->many_rows ? MANY : FEW};
    long long num_padded = num_rows - num_reqs;
    found.num_tiles = divided_up(num_rows, self->requests[found.shape]);
    found.num_spans = spans_of(self, found.shape, num_reqs, num_tokens);
    long long num_wide = longest > self->own_columns ? num_rows : num_padded;
    if (num_padded > 0 && longest < self->widest) longest = self->widest;
    if (!num_wide || longest <= self->own_columns) return found;
    long long most = self->max_wide_programs / (num_wide * self->num_groups);
    found.num_wide = num_wide;
    found.num_chunks = divided_up(longest - self->own_columns, self->wide_columns);
    found.num_chunks = at_most(self->max_chunks, at_most(most < 1 ? 1 : most, found.num_chunks));
    return found;
}

#define APART 6 /* of them, the one that tells how many intervals have several ids */
#define NUM_LEADING 11 /* arguments before the words */

/* Launches by the driver; 0 where Python code has to handle it, -1 for an error. */
static int launch_step(Step *self, Launch *launch, void *stream, unsigned num_programs,
                       const uint64_t *leading) {
    uint64_t values[MAX_PARAMETERS];
    void *parameters[MAX_PARAMETERS];
    Py_ssize_t num_words =
        leading[APART] ? self->words.len / (Py_ssize_t)sizeof(uint64_t) : self->num_words;
    if (NUM_LEADING + num_words != launch->num_arguments) return 0;
    memcpy(values, leading, NUM_LEADING * sizeof(uint64_t));
    memcpy(values + NUM_LEADING, self->words.buf, (size_t)num_words * sizeof(uint64_t));
    for (Py_ssize_t i = launch->num_arguments; i < launch->num_parameters; i++) values[i] = 0;
    for (Py_ssize_t i = 0; i < launch->num_parameters; i++) parameters[i] = &values[i];
    unsigned grid[3] = {num_programs, 1, 1};
    return launch_now(launch, grid, stream, parameters) ? -1 : 1;
}

/* Stands in for the driver in tests. */
static int launch_by_python(PyObject *launch, unsigned num_programs, const uint64_t *leading) {
    PyObject *found = PyObject_CallFunction(
        launch, "I(KKKKLLLLLLL)", num_programs, (unsigned long long)leading[0],
        (unsigned long long)leading[1], (unsigned long long)leading[2],
        (unsigned long long)leading[3], (long long)leading[4], (long long)leading[5],
        (long long)leading[6], (long long)leading[7], (long long)leading[8],
        (long long)leading[9], (long long)leading[10]);
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

/* A step that was checked, and is cut into so many programs of a group without those that write. 1
   if it is launched, 0 where Python code has to handle it, -1 for an error. */
static int pack_and_launch(Step *self, PyObject *launches[2], long long in_group,
                           uint64_t *leading) {
    void *stream;
    if (find_stream(self, &stream)) return 0;
    PyObject *pack[] = {self->words_object, self->slots};
    PyObject *packed = PyObject_Vectorcall(self->pack, pack, 2, NULL);
    if (!packed) return -1;
    long long num_apart = PyLong_AsLongLong(packed);
    Py_DECREF(packed);
    if (num_apart < 0) return PyErr_Occurred() ? -1 : 0;
    PyObject *launch = launches[num_apart > 0];
    if (!launch) return 0;
    leading[APART] = (uint64_t)num_apart;
    unsigned num_programs = (unsigned)(self->num_groups * (1 + num_apart + in_group));
    Py_INCREF(launch);
    int done = Py_TYPE(launch) == &LaunchType
                   ? launch_step(self, (Launch *)launch, stream, num_programs, leading)
                   : launch_by_python(launch, num_programs, leading);
    Py_DECREF(launch);
    return done;
}

static PyObject *step_call(PyObject *object, PyObject *const *args, size_t nargsf,
                           PyObject *names) {
    Step *self = (Step *)object;
    if (PyVectorcall_NARGS(nargsf) != 7 || names) {
        PyErr_SetString(PyExc_TypeError, "expected 7 arguments");
        return NULL;
    }
    long long sizes[4]; /* num_reqs_padded, num_tokens_padded, num_dirty_rows, longest */
    for (int i = 0; i < 4; i++) {
        int overflow = 0;
        if (!PyLong_CheckExact(args[3 + i])) Py_RETURN_NONE;
        sizes[i] = PyLong_AsLongLongAndOverflow(args[3 + i], &overflow);
        if (overflow || sizes[i] < 0) Py_RETURN_NONE;
    }
    Tensor mapping, starts, positions;
    if (!look_at(self, args[0], 0, &mapping) || !look_at(self, args[1], 32, &starts) ||
        !look_at(self, args[2], 64, &positions))
        Py_RETURN_NONE;
    long long num_reqs = mapping.shape[0];
    if (num_reqs > sizes[0] || sizes[0] > self->max_num_reqs || sizes[1] > self->max_num_tokens ||
        sizes[2] > self->max_num_reqs || starts.shape[0] <= num_reqs)
        Py_RETURN_NONE;
    long long num_rows = sizes[0] > sizes[2] ? sizes[0] : sizes[2];
    Cut found = cut(self, num_reqs, num_rows, positions.shape[0], sizes[3]);
    uint64_t leading[NUM_LEADING] = {
        self->descriptors,         address_in(&mapping),      address_in(&starts),
        address_in(&positions),    (uint64_t)num_reqs,        (uint64_t)num_rows,
        0,                         (uint64_t)found.num_spans, (uint64_t)found.num_wide,
        (uint64_t)found.num_chunks, (uint64_t)self->num_pads,
    };
    long long in_group =
        found.num_spans + found.num_tiles + found.num_wide * found.num_chunks + self->num_pads;
    PyObject **launches = self->launches[found.shape][mapping.bits == 64];
    int pushed = 0;
    if (self->device && enter(self->device, &pushed)) return NULL;
    int done = pack_and_launch(self, launches, in_group, leading);
    if (leave(pushed)) return NULL;
    if (!done) Py_RETURN_NONE;
    return PyLong_FromLongLong(num_reqs);
}

static int step_clear(Step *self) {
    Py_CLEAR(self->pack);
    Py_CLEAR(self->words_object);
    Py_CLEAR(self->slots);
    Py_CLEAR(self->device);
    Py_CLEAR(self->tensor_type);
    for (int i = 0; i < NUM_SHAPES; i++) {
        for (int j = 0; j < 4; j++) Py_CLEAR(self->launches[i][j / 2][j % 2]);
    }
    return 0;
}

static int step_traverse(Step *self, visitproc visit, void *arg) {
    Py_VISIT(self->pack);
    Py_VISIT(self->words_object);
    Py_VISIT(self->slots);
    Py_VISIT(self->tensor_type);
    for (int i = 0; i < NUM_SHAPES; i++) {
        for (int j = 0; j < 4; j++) Py_VISIT(self->launches[i][j / 2][j % 2]);
    }
    return 0;
}

static void step_dealloc(Step *self) {
    PyObject_GC_UnTrack(self);
    step_clear(self);
    if (self->words.obj) PyBuffer_Release(&self->words);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *step_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {
        "tensor_type",  "pack",           "words",     "slots",       "num_words",   "descriptors",
        "device_type",  "index",          "device",    "num_groups",  "max_num_reqs",
        "max_num_tokens", "num_pads",     "widest",    "requests",    "tokens",
        "many_rows",    "span",           "max_spans", "own_columns", "wide_columns",
        "max_chunks",   "max_wide_programs", NULL};
    PyTypeObject *tensor_type;
    PyObject *pack, *words, *slots, *device;
    Step found = {0};
    if (!PyArg_ParseTupleAndKeywords(
            args, names, "O!OOO!nKiiOLLLLL(LL)(LL)LLLLLLL", keywords, &PyType_Type, &tensor_type,
            &pack, &words, &PyLong_Type, &slots, &found.num_words, &found.descriptors, &found.device_type,
            &found.device_index, &device, &found.num_groups, &found.max_num_reqs,
            &found.max_num_tokens, &found.num_pads, &found.widest, &found.requests[FEW],
            &found.requests[MANY], &found.tokens[FEW], &found.tokens[MANY], &found.many_rows,
            &found.span, &found.max_spans, &found.own_columns, &found.wide_columns,
            &found.max_chunks, &found.max_wide_programs))
        return NULL;
    if (found.span < 1 || found.wide_columns < 1 || found.requests[FEW] < 1 ||
        found.requests[MANY] < 1 || found.tokens[FEW] < 0 || found.tokens[MANY] < 0) {
        PyErr_SetString(PyExc_ValueError, "span, wide_columns or requests are below 1");
        return NULL;
    }
    int on_cuda = found.device_type == DLPACK_CUDA;
    if (on_cuda ? Py_TYPE(device) != &DeviceType : device != Py_None)
        return PyErr_Format(PyExc_TypeError, "device is a %s; expected %s",
                            Py_TYPE(device)->tp_name, on_cuda ? "a Device" : "None");
    PyObject *capsule =
        PyObject_GetAttrString((PyObject *)tensor_type, "__dlpack_c_exchange_api__");
    if (!capsule) return NULL;
    /* It lives as long as the process. */
    found.exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    if (!found.exchange) return NULL;
    if (found.exchange->major != DLPACK_MAJOR || !found.exchange->look_at ||
        !found.exchange->current_stream) {
        PyErr_Format(PyExc_ValueError, "DLPack %u.%u; expected %d with a quick look at tensors",
                     found.exchange->major, found.exchange->minor, DLPACK_MAJOR);
        return NULL;
    }
    Step *self = (Step *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    size_t head = offsetof(Step, call);
    memcpy((char *)self + head, (char *)&found + head, sizeof(Step) - head);
    self->call = step_call;
    if (PyObject_GetBuffer(words, &self->words, PyBUF_SIMPLE)) {
        self->words.obj = NULL;
        Py_DECREF(self);
        return NULL;
    }
    self->tensor_type = (PyTypeObject *)Py_NewRef(tensor_type);
    self->pack = Py_NewRef(pack);
    self->words_object = Py_NewRef(words);
    self->slots = Py_NewRef(slots);
    self->device = on_cuda ? (Device *)Py_NewRef(device) : NULL;
    return (PyObject *)self;
}

static PyObject *step_add(Step *self, PyObject *args) {
    int shape, wide, has_ids;
    PyObject *launch;
    if (!PyArg_ParseTuple(args, "ippO", &shape, &wide, &has_ids, &launch)) return NULL;
    if (shape < 0 || shape >= NUM_SHAPES)
        return PyErr_Format(PyExc_ValueError, "shape is %d; expected 0 or 1", shape);
    if (Py_TYPE(launch) == &LaunchType && ((Launch *)launch)->device != self->device) {
        PyErr_SetString(PyExc_ValueError, "the launch has another Device than the step");
        return NULL;
    }
    Py_XSETREF(self->launches[shape][wide][has_ids], Py_NewRef(launch));
    Py_RETURN_NONE;
}

static PyMethodDef step_methods[] = {
    {"add", (PyCFunction)step_add, METH_VARARGS,
     "add(shape, wide, has_ids, launch): what launches steps of a shape (0 few, 1 many) with a\n"
     "mapping that is int64, or not, and with intervals of several ids, or none."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Step",
    .tp_doc = "A whole step whose writes are parameters. Called with idx_mapping,\n"
              "query_start_loc, positions, num_reqs_padded, num_tokens_padded, num_dirty_rows and\n"
              "the length of the longest row. Returns the number of requests, once it is launched;\n"
              "None, with nothing done, where Python code has to handle it: arguments that are\n"
              "refused or unusual, writes that do not fit, a kernel that is not loaded, a capture.",
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

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "launcher",
    .m_doc = "Launches and events by the CUDA driver.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_launcher(void) { return PyModuleDef_Init(&definition); }
