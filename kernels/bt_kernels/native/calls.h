/* Calls: the operations of block tables as engines call them, without a Python frame on the way to
   the launch. What is not plain is left to the methods of the tables, which also refuse. */

typedef struct {
    PyObject_HEAD
    PyObject *tables; /* of `bt_kernels.one_launch`; weak, since they have these methods */
} Calls;

#define MOST_ARGUMENTS 16

/* Names of attributes and arguments; made with the first object. */
static struct {
    PyObject *quick, *captured, *validate, *dirty, *is_pending, *is_awaited, *views_of[2],
        *views, *slot_views, *apply, *gather, *slots, *gather_slots, *step, *append,
        *block_tables, *waiting, *end_step, *end_batch, *staged, *rows, *computed, *in_step, *latest,
        *inside, *pcp_manager, *idx_mapping_np, *num_computed_tokens_np, *query_start_loc_np,
        *req_index, *new_block_ids, *overwrite;
    PyObject *idx_mapping, *query_start_loc, *positions, *num_reqs_padded, *num_tokens_padded, *out,
        *out_ptrs, *num_computed_tokens, *slots_out;
} names_of;

static int make_names(void) {
    if (names_of.quick) return 0;
    const struct {
        PyObject **place;
        const char *name;
    } wanted[] = {
        {&names_of.captured, "_captured_writes"},
        {&names_of.validate, "validate"},
        {&names_of.dirty, "num_dirty_rows"},
        {&names_of.is_pending, "is_pending"},
        {&names_of.is_awaited, "is_awaited"},
        {&names_of.views_of[TABLE_VIEWS], "_views_of_tables"},
        {&names_of.views_of[SLOT_VIEWS], "_views_of_slots"},
        {&names_of.views, "_views"},
        {&names_of.slot_views, "_slot_views"},
        {&names_of.apply, "apply_staged_writes"},
        {&names_of.gather, "gather_block_tables"},
        {&names_of.slots, "compute_slot_mappings"},
        {&names_of.gather_slots, "gather_and_compute_slot_mappings"},
        {&names_of.step, "prepare_step"},
        {&names_of.append, "append_block_ids"},
        {&names_of.block_tables, "block_tables"},
        {&names_of.waiting, "_waiting"},
        {&names_of.end_step, "end_step"},
        {&names_of.end_batch, "end_batch"},
        {&names_of.staged, "staged"},
        {&names_of.rows, "_rows"},
        {&names_of.computed, "_computed"},
        {&names_of.in_step, "in_step"},
        {&names_of.latest, "latest"},
        {&names_of.inside, "inside"},
        {&names_of.pcp_manager, "pcp_manager"},
        {&names_of.idx_mapping_np, "idx_mapping_np"},
        {&names_of.num_computed_tokens_np, "num_computed_tokens_np"},
        {&names_of.query_start_loc_np, "query_start_loc_np"},
        {&names_of.req_index, "req_index"},
        {&names_of.new_block_ids, "new_block_ids"},
        {&names_of.overwrite, "overwrite"},
        {&names_of.idx_mapping, "idx_mapping"},
        {&names_of.query_start_loc, "query_start_loc"},
        {&names_of.positions, "positions"},
        {&names_of.num_reqs_padded, "num_reqs_padded"},
        {&names_of.num_tokens_padded, "num_tokens_padded"},
        {&names_of.out, "out"},
        {&names_of.out_ptrs, "out_ptrs"},
        {&names_of.num_computed_tokens, "num_computed_tokens"},
        {&names_of.slots_out, "slots_out"},
        {&names_of.quick, "_quick"},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!(*wanted[i].place = PyUnicode_InternFromString(wanted[i].name))) return -1;
    return 0;
}

/* An argument of an operation: its name, and where it is taken to. */
typedef struct {
    PyObject *name;
    PyObject **place;
} Argument;

/* Takes arguments to their places, those before `num_required` from the call; what else is not
   given stays. 0 where they are not plain: Python code refuses them, or takes them. */
static int take_arguments(const Argument *wanted, Py_ssize_t num_wanted, Py_ssize_t num_by_place,
                          Py_ssize_t num_required, PyObject *const *args, Py_ssize_t num,
                          PyObject *names) {
    Py_ssize_t num_named = names ? PyTuple_GET_SIZE(names) : 0;
    if (num > num_by_place || num + num_named > num_wanted) return 0;
    uint32_t taken = ((uint32_t)1 << num) - 1;
    for (Py_ssize_t i = 0; i < num; i++) *wanted[i].place = args[i];
    for (Py_ssize_t i = 0; i < num_named; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        Py_ssize_t at = num;
        while (at < num_wanted && wanted[at].name != name) at++; /* names in calls are interned */
        if (at == num_wanted || taken >> at & 1) return 0;
        taken |= (uint32_t)1 << at;
        *wanted[at].place = args[num + i];
    }
    uint32_t required = ((uint32_t)1 << num_required) - 1;
    return (taken & required) == required;
}

static int take_gather(Given *given, PyObject *const *args, Py_ssize_t num, PyObject *names) {
    const Argument wanted[] = {
        {names_of.idx_mapping, &given->mapping},
        {names_of.num_reqs_padded, &given->num_reqs_padded},
        {names_of.out, &given->out},
        {names_of.out_ptrs, &given->pointers},
        {names_of.num_computed_tokens, &given->computed},
    };
    given->computed = given->out = given->pointers = given->slots_out = Py_None;
    return take_arguments(wanted, 5, 5, 2, args, num, names);
}

static int take_slots(Given *given, PyObject *const *args, Py_ssize_t num, PyObject *names) {
    const Argument wanted[] = {
        {names_of.idx_mapping, &given->mapping},
        {names_of.query_start_loc, &given->starts},
        {names_of.positions, &given->positions},
        {names_of.num_tokens_padded, &given->num_tokens_padded},
        {names_of.out, &given->slots_out},
    };
    given->computed = given->slots_out = Py_None;
    return take_arguments(wanted, 5, 5, 4, args, num, names);
}

static int take_none(Given *given, PyObject *const *args, Py_ssize_t num, PyObject *names) {
    (void)given, (void)args;
    return num == 0 && !names;
}

/* Of a whole step, and of a gather with slots. */
static int take_both(Given *given, PyObject *const *args, Py_ssize_t num, PyObject *names) {
    const Argument wanted[] = {
        {names_of.idx_mapping, &given->mapping},
        {names_of.query_start_loc, &given->starts},
        {names_of.positions, &given->positions},
        {names_of.num_reqs_padded, &given->num_reqs_padded},
        {names_of.num_tokens_padded, &given->num_tokens_padded},
        {names_of.out, &given->out},
        {names_of.out_ptrs, &given->pointers},
        {names_of.num_computed_tokens, &given->computed},
        {names_of.slots_out, &given->slots_out},
    };
    given->computed = given->out = given->pointers = given->slots_out = Py_None;
    return take_arguments(wanted, 9, 5, 5, args, num, names);
}

/* Forgets an error that Python code handles, or meets again. One that no `except Exception` stops,
   such as that of a signal which ends the process, stays: 1 then. */
static int forget_error(void) {
    if (!PyErr_Occurred()) return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return 1;
    PyErr_Clear();
    return 0;
}

/* Whether a property of the captured writes, if there are any, holds; not 0 for an error, too. */
static int captured_holds(PyObject *captured, PyObject *name) {
    PyObject *found = PyObject_GetAttr(captured, name);
    int holds = found ? PyObject_IsTrue(found) : 1;
    Py_XDECREF(found);
    return holds;
}

/* The step that may be made in C now, a new reference; NULL if none, see `forget_error`. A part of a
   step that gathers has to count the rows of a replay that may follow, which Python code does. */
static Step *step_of(PyObject *tables, int part) {
    PyObject *step = PyObject_GetAttr(tables, names_of.quick);
    if (!step || Py_TYPE(step) != &StepType) goto none;
    PyObject *validates = PyObject_GetAttr(tables, names_of.validate);
    Py_XDECREF(validates);
    if (validates != Py_False) goto none;
    if (part == SLOTS) return (Step *)step;
    /* An apply settles what was captured, whatever that is. */
    PyObject *captured = PyObject_GetAttr(tables, names_of.captured);
    int may_follow =
        !captured || (captured != Py_None &&
                      (part == APPLY || captured_holds(captured, names_of.is_pending) ||
                       (part != WHOLE && captured_holds(captured, names_of.is_awaited))));
    Py_XDECREF(captured);
    if (!may_follow) return (Step *)step;
none:
    Py_XDECREF(step);
    forget_error();
    return NULL;
}

/* The views of so many rows of the input tables, or of so many slots. */
static PyObject *views_of(PyObject *tables, Step *step, int kind, PyObject *size) {
    long long number = 0;
    take_size(size, &number); /* the step has looked at it */
    Kept *kept = &step->kept[kind][number % NUM_KEPT];
    if (kept->views && kept->size == number) return Py_NewRef(kept->views);
    PyObject *views = PyObject_CallMethodOneArg(tables, names_of.views_of[kind], size);
    if (!views) return NULL;
    kept->size = number;
    Py_XSETREF(kept->views, Py_NewRef(views));
    return views;
}

/* What an operation returns: the rows, the slots, or both. */
static PyObject *result_of(PyObject *tables, Step *step, int part, const Given *given) {
    PyObject *rows = NULL, *slots = NULL, *both = NULL;
    if (part == APPLY) Py_RETURN_NONE;
    if (part != SLOTS) {
        rows = given->out == Py_None
                   ? views_of(tables, step, TABLE_VIEWS, given->num_reqs_padded)
                   : PyObject_CallMethodObjArgs(tables, names_of.views, given->num_reqs_padded,
                                                given->out, NULL);
        if (part == GATHER || !rows) return rows;
    }
    slots = given->slots_out == Py_None
                ? views_of(tables, step, SLOT_VIEWS, given->num_tokens_padded)
                : PyObject_CallMethodObjArgs(tables, names_of.slot_views,
                                             given->num_tokens_padded, given->slots_out, NULL);
    if (part == SLOTS) return slots;
    if (slots) both = PyTuple_Pack(2, rows, slots);
    Py_DECREF(rows);
    Py_XDECREF(slots);
    return both;
}

/* Makes a step, or a part of one, with arguments that were taken. Returns what the part `asked` of it
   returns; NULL without an error where Python code has to handle it. */
static PyObject *operate_by(PyObject *tables, Step *step, int part, Given *given, int asked) {
    int gathers = part == GATHER || part == GATHER_SLOTS || part == WHOLE;
    PyObject *result = NULL, *dirty = NULL;
    if (gathers && !(given->num_dirty_rows = dirty = PyObject_GetAttr(tables, names_of.dirty)))
        return NULL;
    Plan plan = {0};
    int done = part == APPLY && !PyObject_IsTrue(step->staged)
                   ? 1
                   : launch_given(step, part, given, &plan);
    if (done == 1 && gathers && given->out == Py_None) {
        PyObject *num_reqs = PyLong_FromUnsignedLongLong(plan.leading[NUM_REQS]);
        if (!num_reqs || PyObject_SetAttr(tables, names_of.dirty, num_reqs)) done = -1;
        Py_XDECREF(num_reqs);
    }
    if (done == 1) result = result_of(tables, step, asked, given);
    Py_XDECREF(dirty);
    return result;
}

static PyObject *operate(PyObject *tables, int part, Given *given) {
    Step *step = step_of(tables, part);
    PyObject *result = step ? operate_by(tables, step, part, given, part) : NULL;
    Py_XDECREF(step);
    return result;
}

/* Calls the method of the class of an object, with the arguments as they were given. */
static PyObject *by_python(PyObject *object, PyObject *name, PyObject *const *args, Py_ssize_t num,
                           PyObject *names) {
    Py_ssize_t num_all = num + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject *all[MOST_ARGUMENTS + 1] = {object};
    if (num_all > MOST_ARGUMENTS) return PyErr_Format(PyExc_TypeError, "too many arguments");
    memcpy(all + 1, args, (size_t)num_all * sizeof(PyObject *));
    PyObject *method = PyObject_GetAttr((PyObject *)Py_TYPE(object), name);
    PyObject *result = method ? PyObject_Vectorcall(method, all, (size_t)num + 1, names) : NULL;
    Py_XDECREF(method);
    return result;
}

/* What a weak reference is to, a new reference; NULL with an error if it is gone. */
static PyObject *still_there(PyObject *weak) {
    PyObject *object = NULL;
#if PY_VERSION_HEX >= 0x030D0000
    PyWeakref_GetRef(weak, &object);
#else
    object = Py_NewRef(PyWeakref_GetObject(weak));
    if (object == Py_None) Py_CLEAR(object);
#endif
    if (!object && !PyErr_Occurred())
        PyErr_SetString(PyExc_ReferenceError,
                        "the tables of this method are gone; keep them as long as it");
    return object;
}

static PyObject *calls_operate(Calls *self, int part, int is_taken, Given *given, PyObject *name,
                               PyObject *const *args, Py_ssize_t num, PyObject *names) {
    PyObject *tables = still_there(self->tables);
    if (!tables) return NULL;
    PyObject *result = is_taken ? operate(tables, part, given) : NULL;
    if (!result && !PyErr_Occurred()) result = by_python(tables, name, args, num, names);
    Py_DECREF(tables);
    return result;
}

#define OPERATION(NAME, PART, TAKE, METHOD)                                                        \
    static PyObject *NAME(Calls *self, PyObject *const *args, Py_ssize_t num, PyObject *names) {   \
        Given given = {0};                                                                         \
        int is_taken = TAKE(&given, args, num, names);                                             \
        return calls_operate(self, PART, is_taken, &given, METHOD, args, num, names);              \
    }

OPERATION(calls_apply, APPLY, take_none, names_of.apply)
OPERATION(calls_gather, GATHER, take_gather, names_of.gather)
OPERATION(calls_slots, SLOTS, take_slots, names_of.slots)
OPERATION(calls_gather_slots, GATHER_SLOTS, take_both, names_of.gather_slots)
OPERATION(calls_step, WHOLE, take_both, names_of.step)

static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"tables", NULL};
    PyObject *tables;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O", keywords, &tables) || make_names())
        return NULL;
    Calls *self = (Calls *)type->tp_alloc(type, 0);
    if (self && !(self->tables = PyWeakref_NewRef(tables, NULL))) Py_CLEAR(self);
    return (PyObject *)self;
}

static void calls_dealloc(Calls *self) {
    Py_XDECREF(self->tables);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

#define WITH_NAMES(FUNCTION) (PyCFunction)(void (*)(void))FUNCTION, METH_FASTCALL | METH_KEYWORDS

static PyMethodDef calls_methods[] = {
    {"apply_staged_writes", WITH_NAMES(calls_apply), NULL},
    {"gather_block_tables", WITH_NAMES(calls_gather), NULL},
    {"compute_slot_mappings", WITH_NAMES(calls_slots), NULL},
    {"gather_and_compute_slot_mappings", WITH_NAMES(calls_gather_slots), NULL},
    {"prepare_step", WITH_NAMES(calls_step), NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Calls",
    .tp_doc = "Calls(tables): the operations of tables that have a `Step` as `_quick`, without a\n"
              "Python frame on the way to the launch. What `Step` does not make, such as a refused\n"
              "argument, a kernel that is not loaded or a capture, the methods of the class do.",
    .tp_basicsize = sizeof(Calls),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = calls_new,
    .tp_methods = calls_methods,
    .tp_dealloc = (destructor)calls_dealloc,
};
