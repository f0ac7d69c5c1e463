/* The staged writes of a step, in C: the same as `StagedWrites` of staging/writes.py.
 *
 * Python code runs only while arguments are read (`__index__`, `__bool__`, iteration), into memory
 * that the call owns. So a call that is made meanwhile, or a list that changes, does no harm; and
 * what follows, the change itself, is never interrupted.
 */

#include "staged_state.h"
#include "staged_arguments.h"
#include "staged_changes.h"

/* Methods that stage */

static int takes(const char *name, Py_ssize_t given, Py_ssize_t expected)
{
    if (given == expected)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd given", name, expected, given);
    return 0;
}

/* Stages what has been read, and frees it. `True` if it is, `False` if it is refused, or NULL.
 *
 * Args: what reading returned; an exception about a value that is not an int32 or not a list is
 * a refusal.
 */
static PyObject *finish(StagedWrites *self, Arguments *arguments, int outcome, PyObject *redirect)
{
    if (outcome < 0 && (PyErr_ExceptionMatches(PyExc_TypeError) ||
                        PyErr_ExceptionMatches(PyExc_OverflowError))) {
        PyErr_Clear();
        outcome = 1;
    }
    if (outcome == 0) {
        int redirects = PyObject_IsTrue(redirect);
        outcome = redirects < 0 ? -1 : stage(self, arguments, redirects);
    }
    keep_arguments(self, arguments);
    return outcome < 0 ? NULL : PyBool_FromLong(outcome == 0);
}

/* Stages a request; as `finish`. */
static PyObject *stage_any(StagedWrites *self, PyObject *const *args, PyObject *redirect)
{
    Arguments arguments = take_arguments(self);
    int outcome = read_request(self, args[0], args[1], args[2], &arguments);
    return finish(self, &arguments, outcome, redirect);
}

static PyObject *append(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (!takes("append", nargs, 4))
        return NULL;
    if (args[3] == Py_False && stage_plain(self, args[0], args[1], args[2]))
        Py_RETURN_TRUE;
    return stage_any(self, args, args[3]);
}

/* A method without Python on the way, its arguments, and what says why they are refused. */
typedef struct {
    const char *name, *arguments[3];
    PyObject *refuse;
} Call;

/* The interned name of the argument that vLLM's runner names; the same in each import. */
static PyObject *name_of_overwrite;

/* Whether three arguments are given in their order, and no other than the last by its name. */
static inline int are_in_order(Py_ssize_t nargs, PyObject *names)
{
    if (names == NULL)
        return nargs == 3;
    return nargs == 2 && PyTuple_GET_SIZE(names) == 1 &&
           PyTuple_GET_ITEM(names, 0) == name_of_overwrite;
}

/* The three arguments in their order, in `given` if they are not. NULL for an error. */
static PyObject *const *take_request(const Call *call, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *names, PyObject **given)
{
    if (are_in_order(nargs, names))
        return args;
    Py_ssize_t num_names = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (!takes(call->name, nargs + num_names, 3))
        return NULL;
    for (Py_ssize_t place = 0; place < nargs; place++)
        given[place] = args[place];
    for (Py_ssize_t index = 0; index < num_names; index++) {
        PyObject *name = PyTuple_GET_ITEM(names, index);
        Py_ssize_t place = 0;
        while (place < 3 && PyUnicode_CompareWithASCIIString(name, call->arguments[place]) != 0)
            place++;
        if (place == 3 || given[place] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s has no argument %R, or was given two of it",
                         call->name, name);
            return NULL;
        }
        given[place] = args[nargs + index];
    }
    return given;
}

/* None for what is staged; what is refused is handed to the Python code that says why. */
static PyObject *none_or_refusal(const Call *call, PyObject *const *args, PyObject *staged)
{
    if (staged != Py_False) {
        Py_XDECREF(staged);
        if (staged == NULL)
            return NULL;
        Py_RETURN_NONE;
    }
    Py_DECREF(staged);
    if (call->refuse != NULL) {
        PyObject *said = PyObject_CallFunctionObjArgs(call->refuse, args[0], args[1], args[2], NULL);
        if (said == NULL)
            return NULL;
        Py_DECREF(said);
    }
    PyErr_SetString(PyExc_ValueError, "the request is refused");
    return NULL;
}

/* As `Packing.append`. */
static int append_in(PyObject *self, PyObject *row, PyObject *block_ids, PyObject *overwrite)
{
    StagedWrites *staged = (StagedWrites *)self;
    return !staged->redirects && stage_plain(staged, row, block_ids, overwrite);
}

static PyObject *append_block_ids(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *names)
{
    if (are_in_order(nargs, names) && append_in((PyObject *)self, args[0], args[1], args[2]))
        Py_RETURN_NONE;
    Call call = {"append_block_ids", {"req_index", "new_block_ids", "overwrite"}, self->refuse};
    PyObject *given[3] = {NULL, NULL, NULL};
    if ((args = take_request(&call, args, nargs, names, given)) == NULL)
        return NULL;
    PyObject *staged = stage_any(self, args, self->redirects ? Py_True : Py_False);
    return none_or_refusal(&call, args, staged);
}

static PyObject *stage_many(StagedWrites *self, PyObject *const *args, PyObject *redirect)
{
    Arguments arguments = take_arguments(self);
    int outcome = -1;
    PyObject *rows = listed(args[0]);
    PyObject *block_ids = rows == NULL ? NULL : listed(args[1]);
    PyObject *overwrite = block_ids == NULL ? NULL : listed(args[2]);
    if (overwrite != NULL)
        outcome = read_requests(self, rows, block_ids, overwrite, &arguments);
    Py_XDECREF(rows);
    Py_XDECREF(block_ids);
    Py_XDECREF(overwrite);
    return finish(self, &arguments, outcome, redirect);
}

static PyObject *append_many(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    return takes("append_many", nargs, 4) ? stage_many(self, args, args[3]) : NULL;
}

static PyObject *append_requests(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *names)
{
    Call call = {"append_many", {"req_indices", "new_block_ids", "overwrite"}, self->refuse_many};
    PyObject *given[3] = {NULL, NULL, NULL};
    if ((args = take_request(&call, args, nargs, names, given)) == NULL)
        return NULL;
    PyObject *staged = stage_many(self, args, self->redirects ? Py_True : Py_False);
    return none_or_refusal(&call, args, staged);
}

static void forget(StagedWrites *self)
{
    Py_ssize_t num_words = self->num_groups * self->words_per_group;
    if (num_words <= self->num_records)
        memset(self->rows, 0, (size_t)num_words * sizeof(uint64_t));
    else
        for (Py_ssize_t index = 0; index < self->num_records; index++) {
            const Record *record = &self->records[index];
            *word_of(self->rows + record->group * self->words_per_group, record->row) = 0;
        }
    self->num_records = self->num_pieces = self->size_of_ids = self->num_ids = 0;
    self->is_ordered = 1;
    for (Py_ssize_t group = 0; group < self->num_groups; group++) {
        self->groups[group].head = self->groups[group].tail = NONE;
        self->groups[group].num_records = 0;
    }
}

static PyObject *clear(StagedWrites *self, PyObject *Py_UNUSED(none))
{
    forget(self);
    Py_RETURN_NONE;
}

#include "staged_packs.h"

/* Attributes */

static int is_any(StagedWrites *self) { return self->num_records != 0; }

static PyObject *get_num_records(StagedWrites *self, void *Py_UNUSED(none))
{
    return PyLong_FromSsize_t(self->num_records);
}

static PyObject *get_num_ids(StagedWrites *self, void *Py_UNUSED(none))
{
    return PyLong_FromSsize_t(self->num_ids);
}

static PyObject *get_longest(StagedWrites *self, void *Py_UNUSED(none))
{
    return PyLong_FromLongLong(longest_of(self));
}

static long long longest_in(PyObject *self) { return longest_of((StagedWrites *)self); }

static void clear_in(PyObject *self) { forget((StagedWrites *)self); }

static PyObject *get_packing(StagedWrites *Py_UNUSED(self), void *Py_UNUSED(none))
{
    static const Packing packing = {pack_into, longest_in, clear_in, append_in};
    return PyCapsule_New((void *)&packing, PACKING, NULL);
}

static PyObject *get_redirects(StagedWrites *self, void *Py_UNUSED(none))
{
    return PyBool_FromLong(self->redirects);
}

static int set_redirects(StagedWrites *self, PyObject *value, void *Py_UNUSED(none))
{
    int redirects = value == NULL ? 0 : PyObject_IsTrue(value);
    if (redirects >= 0)
        self->redirects = (char)redirects;
    return redirects < 0 ? -1 : 0;
}

static int set_refuse(StagedWrites *self, PyObject *value, void *many)
{
    PyObject **place = many == NULL ? &self->refuse : &self->refuse_many, *before = *place;
    *place = Py_XNewRef(value);
    Py_XDECREF(before);
    return 0;
}

static int set_longest(StagedWrites *self, PyObject *value, void *Py_UNUSED(none))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "longest cannot be deleted");
        return -1;
    }
    PyObject *integer = PyNumber_Index(value);
    if (integer == NULL)
        return -1;
    long long number = PyLong_AsLongLong(integer);
    Py_DECREF(integer);
    if (number == -1 && PyErr_Occurred())
        return -1;
    self->longest = (Longest){number, 0};
    return 0;
}

/* The type */

/* Reads the width of each group; the lengths of `widths` and `groups` agree. */
static int read_widths(StagedWrites *self, const Arguments *widths)
{
    self->num_groups = widths->num_ids;
    self->groups = PyMem_Calloc((size_t)self->num_groups, sizeof(Group));
    if (self->groups == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t group = 0; group < self->num_groups; group++)
        self->groups[group].width = widths->ids[group];
    return 0;
}

static int read_num_blocks(StagedWrites *self, PyObject *num_blocks)
{
    Py_buffer *view = &self->num_blocks;
    int flags = PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND;
    if (PyObject_GetBuffer(num_blocks, view, flags) < 0) {
        view->obj = NULL;
        if (!PyErr_ExceptionMatches(PyExc_BufferError) &&
            !PyErr_ExceptionMatches(PyExc_ValueError))
            return -1;
        PyErr_Clear();
        goto refused;
    }
    if (view->ndim != 2 || view->format == NULL || strcmp(view->format, "i") != 0 ||
        self->num_groups == 0 || view->shape[0] != self->num_groups || view->shape[1] < 1 ||
        view->shape[1] > INT32_MAX / self->num_groups)
        goto refused;
    self->counts = view->buf;
    self->max_num_reqs = view->shape[1];
    self->words_per_group = (self->max_num_reqs + BITMAP_ROWS - 1) / BITMAP_ROWS;
    self->rows = PyMem_Calloc((size_t)(self->num_groups * self->words_per_group), sizeof(uint64_t));
    self->places = PyMem_Malloc((size_t)(self->num_groups * self->max_num_reqs) * sizeof(int32_t));
    if (self->rows == NULL || self->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
refused:
    PyErr_Format(PyExc_ValueError,
                 "num_blocks is not a writable C-contiguous int32 array of %zd rows, one per group",
                 self->num_groups);
    return -1;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "StagedWrites takes no keyword arguments");
        return NULL;
    }
    if (!takes("StagedWrites", PyTuple_GET_SIZE(args), 2))
        return NULL;
    StagedWrites *self = (StagedWrites *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Arguments widths = {0};
    int outcome = read_ids(PyTuple_GET_ITEM(args, 0), &widths) < 0 ? -1 : 0;
    if (outcome == 0)
        outcome = read_widths(self, &widths);
    free_arguments(&widths);
    if (outcome < 0 || read_num_blocks(self, PyTuple_GET_ITEM(args, 1)) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    forget(self);
    return (PyObject *)self;
}

static void destroy(StagedWrites *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&self->num_blocks);
    PyMem_Free(self->groups);
    PyMem_Free(self->rows);
    PyMem_Free(self->places);
    PyMem_Free(self->records);
    PyMem_Free(self->pieces);
    PyMem_Free(self->ids);
    free_arguments(&self->spare);
    Py_XDECREF(self->refuse);
    Py_XDECREF(self->refuse_many);
    type->tp_free(self);
    Py_DECREF(type);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"append", FAST(append), METH_FASTCALL, NULL},
    {"append_block_ids", FAST(append_block_ids), METH_FASTCALL | METH_KEYWORDS,
     "append_block_ids($self, req_index, new_block_ids, overwrite)\n--\n\n"
     "Stages new block ids of one request row; see `BlockTableOperations.append_block_ids`."},
    {"append_many", FAST(append_many), METH_FASTCALL, NULL},
    {"append_requests", FAST(append_requests), METH_FASTCALL | METH_KEYWORDS,
     "append_requests($self, req_indices, new_block_ids, overwrite)\n--\n\n"
     "Stages new block ids of many request rows; see `DeviceBlockTables.append_many`."},
    {"pack", FAST(pack), METH_FASTCALL, NULL},
    {"pack_step", FAST(pack_step), METH_FASTCALL, NULL},
    {"pack_words", FAST(pack_words), METH_FASTCALL, NULL},
    {"intervals", FAST(intervals), METH_NOARGS, NULL},
    {"clear", FAST(clear), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"num_records", (getter)get_num_records, NULL, NULL, NULL},
    {"num_ids", (getter)get_num_ids, NULL, NULL, NULL},
    {"longest", (getter)get_longest, (setter)set_longest, NULL, NULL},
    {"packing", (getter)get_packing, NULL, NULL, NULL},
    {"redirects", (getter)get_redirects, (setter)set_redirects, NULL, NULL},
    {"refuse", NULL, (setter)set_refuse, NULL, NULL},
    {"refuse_many", NULL, (setter)set_refuse, NULL, "many"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_new, (void *)create},
    {Py_tp_dealloc, (void *)destroy},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_nb_bool, (void *)is_any},
    {Py_tp_doc, "The writes of a step; see StagedWrites of staging.py."},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "staged.StagedWrites",
    .basicsize = sizeof(StagedWrites),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

/* No state outside of the module but a name: each import of the file makes a module and a type of
 * its own. */
static int execute(PyObject *module)
{
    if (name_of_overwrite == NULL &&
        (name_of_overwrite = PyUnicode_InternFromString("overwrite")) == NULL)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &type_spec, NULL);
    if (type == NULL)
        return -1;
    int outcome = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return outcome;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "staged",
    .m_doc = "The staged writes of a step, in C.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit_staged(void) { return PyModuleDef_Init(&definition); }
