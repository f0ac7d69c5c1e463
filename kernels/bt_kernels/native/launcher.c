/* Launches and events by the CUDA driver, without the Python on the way to it.

   The driver is found when it is asked for, so that the module can be compiled and imported where
   there is none. Its functions are declared here: the headers of CUDA need not be installed. */

#include "driver.h"
#include "launch.h"
#include "step_plan.h"
#include "step.h"
#include "calls.h"
#include "noting.h"
#include "waiting.h"
#include "arrays.h"
#include "slabs.h"
#include "inputs.h"

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
    {"counts", counts, METH_NOARGS,
     "counts(): in this process, calls of apply that C made, those of them that waited, and steps\n"
     "that became one call."},
    {"step_times", step_times, METH_NOARGS,
     "step_times(): number, sum and maximum in ns of the steps that C measured, and buckets as in\n"
     "HostTimes."},
    {"forget_counts", forget_counts, METH_NOARGS, "forget_counts(): begin to count anew."},
    {"lacking", lacking, METH_NOARGS, "lacking(): what of the CUDA driver is missing, or None."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    PyTypeObject *types[] = {&DeviceType, &LaunchType,  &StepType,   &CallsType,
                             &NotingType, &WaitingType, &AroundType, &InputsType};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (PyModule_AddType(module, types[i])) return -1;
    return 0;
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
