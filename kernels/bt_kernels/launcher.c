/* Launches and events by the CUDA driver, without the Python on the way to it.

   The driver is found when it is asked for, so that the module can be compiled and imported where
   there is none. Its functions are declared here: the headers of CUDA need not be installed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAX_PARAMETERS 1024
#define MAX_WORDS 64
#define INVALID_CONTEXT 201
#define NOT_READY 600

typedef int Result;

static struct {
    Result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
    Result (*parameter)(void *, size_t, size_t *, size_t *);
    Result (*graph_launch)(void *, void *);
    Result (*record)(void *, void *);
    Result (*query)(void *);
    Result (*synchronize)(void *);
    Result (*error_string)(Result, const char **);
    Result (*device)(int *, int);
    Result (*primary)(void **, int);
    Result (*use_context)(void *);
} driver;

static int found;

static const char *find_driver(void) {
    if (found) return NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return "there is no libcuda.so.1";
    const struct {
        const char *name;
        void **place;
    } wanted[] = {
        {"cuLaunchKernel", (void **)&driver.launch},
        {"cuFuncGetParamInfo", (void **)&driver.parameter},
        {"cuGraphLaunch", (void **)&driver.graph_launch},
        {"cuEventRecord", (void **)&driver.record},
        {"cuEventQuery", (void **)&driver.query},
        {"cuEventSynchronize", (void **)&driver.synchronize},
        {"cuGetErrorString", (void **)&driver.error_string},
        {"cuDeviceGet", (void **)&driver.device},
        {"cuDevicePrimaryCtxRetain", (void **)&driver.primary},
        {"cuCtxSetCurrent", (void **)&driver.use_context},
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

/* Launch: a kernel on a device, and how many parameters it has. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *owner; /* keeps the kernel loaded */
    PyObject *data_ptr;
    void *function;
    int device;
    unsigned threads, shared;
    Py_ssize_t num_arguments, num_parameters;
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

static Result launch_now(Launch *self, const unsigned *grid, void *stream, void **parameters) {
    return driver.launch(self->function, grid[0], grid[1], grid[2], self->threads, 1, 1,
                         self->shared, stream, parameters, NULL);
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
        if (num + more <= self->num_arguments) memcpy(&values[num], words.buf, (size_t)words.len);
        num += more;
        PyBuffer_Release(&words);
    }
    if (num != self->num_arguments)
        return PyErr_Format(PyExc_TypeError, "%zd arguments; expected %zd that are not None", num,
                            self->num_arguments);
    for (; num < self->num_parameters; num++) values[num] = 0;
    for (Py_ssize_t i = 0; i < num; i++) parameters[i] = &values[i];
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = launch_now(self, grid, stream, parameters);
    if (result == INVALID_CONTEXT) {
        /* A thread that has not used the device yet. */
        int device;
        void *context;
        if (!driver.device(&device, self->device) && !driver.primary(&context, device) &&
            !driver.use_context(context))
            result = launch_now(self, grid, stream, parameters);
    }
    Py_END_ALLOW_THREADS
    if (result) return fail("cuLaunchKernel", result);
    Py_RETURN_NONE;
}

static PyObject *launch_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"owner",   "function",      "device", "threads",
                               "shared",  "num_arguments", NULL};
    PyObject *owner, *function;
    int device;
    unsigned threads, shared;
    Py_ssize_t num_arguments;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO!iIIn", keywords, &owner, &PyLong_Type,
                                     &function, &device, &threads, &shared, &num_arguments))
        return NULL;
    if (!ready()) return NULL;
    void *address = address_of(function);
    if (PyErr_Occurred()) return NULL;
    /* How many parameters there are, and how long, is asked of the binary: beside its arguments
       Triton gives a kernel up to two addresses of scratch memory, null where it uses none. */
    Py_ssize_t count = 0;
    size_t offset, size;
    while (count < MAX_PARAMETERS && !driver.parameter(address, (size_t)count, &offset, &size)) {
        if (size != 4 && size != 8)
            return PyErr_Format(PyExc_ValueError, "parameter %zd has %zu bytes; expected 4 or 8",
                                count, size);
        count++;
    }
    if (num_arguments < 0 || count < num_arguments || count > num_arguments + 2)
        return PyErr_Format(PyExc_ValueError,
                            "the kernel has %zd parameters; expected %zd, and up to 2 of Triton's",
                            count, num_arguments);
    Launch *self = (Launch *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->call = launch_call;
    self->data_ptr = PyUnicode_InternFromString("data_ptr");
    self->owner = Py_NewRef(owner);
    self->function = address;
    self->device = device;
    self->threads = threads;
    self->shared = shared;
    self->num_arguments = num_arguments;
    self->num_parameters = count;
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
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject LaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Launch",
    .tp_doc = "Launch(owner, function, device, threads, shared, num_arguments)\n\n"
              "A kernel that is called with stream, grid, and a tuple of arguments: integers,\n"
              "tensors, and None for what the binary has no parameter for. A buffer of int64 may\n"
              "follow, whose elements are the last arguments.",
    .tp_basicsize = sizeof(Launch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = launch_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launch, call),
    .tp_traverse = (traverseproc)launch_traverse,
    .tp_clear = (inquiry)launch_clear,
    .tp_dealloc = (destructor)launch_dealloc,
};

/* Events, by the handles that torch made. */

static PyObject *record(PyObject *module, PyObject *const *args, Py_ssize_t num) {
    (void)module;
    if (num != 2) return PyErr_Format(PyExc_TypeError, "%zd arguments; expected 2", num);
    void *event = address_of(args[0]), *stream = address_of(args[1]);
    if (PyErr_Occurred() || !ready()) return NULL;
    Result result = driver.record(event, stream);
    if (result) return fail("cuEventRecord", result);
    Py_RETURN_NONE;
}

static PyObject *replay(PyObject *module, PyObject *const *args, Py_ssize_t num) {
    (void)module;
    if (num != 2) return PyErr_Format(PyExc_TypeError, "%zd arguments; expected 2", num);
    void *executable = address_of(args[0]), *stream = address_of(args[1]);
    if (PyErr_Occurred() || !ready()) return NULL;
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.graph_launch(executable, stream);
    Py_END_ALLOW_THREADS
    if (result) return fail("cuGraphLaunch", result);
    Py_RETURN_NONE;
}

static PyObject *wait_for(PyObject *module, PyObject *event) {
    (void)module;
    void *address = address_of(event);
    if (PyErr_Occurred() || !ready()) return NULL;
    Result result = driver.query(address);
    if (result == NOT_READY) {
        Py_BEGIN_ALLOW_THREADS
        result = driver.synchronize(address);
        Py_END_ALLOW_THREADS
    }
    if (result) return fail("cuEventSynchronize", result);
    Py_RETURN_NONE;
}

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
    char *place = (char *)view.buf + first * 4;
    int fits = first * 4 + (Py_ssize_t)size * count <= view.len;
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
    {"record", (PyCFunction)(void (*)(void))record, METH_FASTCALL,
     "record(event, stream): enqueues an event."},
    {"replay", (PyCFunction)(void (*)(void))replay, METH_FASTCALL,
     "replay(executable, stream): launches a graph."},
    {"wait_for", wait_for, METH_O, "wait_for(event): waits until an event has come."},
    {"repeat", (PyCFunction)(void (*)(void))repeat, METH_FASTCALL,
     "repeat(view, first, count, words): writes int64 words so many times, side by side, from an\n"
     "element of an int32 view on."},
    {"lacking", lacking, METH_NOARGS, "lacking(): what of the CUDA driver is missing, or None."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) { return PyModule_AddType(module, &LaunchType); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "launcher",
    .m_doc = "Launches and events by the CUDA driver.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_launcher(void) { return PyModuleDef_Init(&definition); }
