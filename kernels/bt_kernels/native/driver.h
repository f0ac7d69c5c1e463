/* The driver, and devices by their primary contexts. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>


#define MAX_PARAMETERS 4096
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
    unsigned long long launches; /* of kernels and graphs, changed under Python's lock */
} Device;

/* Whether the device is current in this thread, by its primary context or another one. Returns -1
   for an error. */
static int has_current(const Device *self) {
    void *context = NULL;
    int number;
    Result result = driver.current_context(&context);
    if (result) {
        fail("cuCtxGetCurrent", result);
        return -1;
    }
    return context == self->context ||
           (context && !driver.current_device(&number) && number == self->number);
}

/* Makes the device current for calls of the driver by this thread, unless it is. Another context of
   the device than its primary one stays: streams of a green context, whose default stream is not
   that of the primary one, are to be met in it. Returns -1 for an error. */
static int enter(const Device *self, int *pushed) {
    *pushed = 0;
    int is_current = has_current(self);
    if (is_current) return is_current < 0 ? -1 : 0;
    Result result = driver.push(self->context);
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

static PyObject *device_is_current(Device *self, PyObject *unused) {
    (void)unused;
    int is_current = has_current(self);
    if (is_current < 0) return NULL;
    return PyBool_FromLong(is_current);
}

/* Streams, events and graphs, by the handles that torch has. */

static PyObject *device_is_captured(Device *self, PyObject *stream) {
    void *address = address_of(stream);
    int pushed, status = 0;
    if (PyErr_Occurred() || enter(self, &pushed)) return NULL;
    Result result = driver.is_capturing(address, &status);
    if (result) fail("cuStreamIsCapturing", result);
    if (leave(pushed)) return NULL;
    return PyBool_FromLong(status); /* also of a capture that has failed and not ended yet */
}

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
    else self->launches++;
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
    {"is_current", (PyCFunction)device_is_current, METH_NOARGS,
     "is_current(): whether the device is current in this thread, by whatever context."},
    {"is_captured", (PyCFunction)device_is_captured, METH_O,
     "is_captured(stream): whether a stream is being captured."},
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

static PyMemberDef device_members[] = {
    {"launches", T_ULONGLONG, offsetof(Device, launches), READONLY,
     "kernels and graphs that were launched on it by this module"},
    {NULL, 0, 0, 0, NULL},
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
    .tp_members = device_members,
    .tp_dealloc = (destructor)device_dealloc,
};
