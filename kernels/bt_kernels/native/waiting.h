/* Waiting: an apply and a gather that wait for the slots of their step, as the plugin for vLLM lets
   them; and Around: the two methods of the runner within which they may. What is not plain is left
   to the Python methods, which share this state. */

typedef struct {
    PyObject_HEAD
    PyObject *tables; /* the variant */
    PyObject *append; /* of the variant */
    PyObject *staged; /* that is a method of it, which keeps it; NULL if it is a method of others */
    const Packing *packing; /* its functions */
    PyObject *owner;  /* the engine's tables; weak, since they have this object */
    PyObject *mapping, *num_reqs_padded, *computed; /* of the gather that waits; NULL if none does */
    Step *step; /* that was found for it; NULL if Python let it wait */
    PyObject *noting; /* where calls are noted; NULL if they are not */
    long long spent_ns; /* of this step */
    char in_step, in_batch, applies, times, has_applied;
    char is_short; /* 0 once the owner is another class's, whose methods do more */
} Waiting;

static void forget_gather(Waiting *self) {
    Py_CLEAR(self->mapping);
    Py_CLEAR(self->num_reqs_padded);
    Py_CLEAR(self->computed);
    Py_CLEAR(self->step);
}

static void note_gather(Waiting *self, PyObject *mapping, PyObject *size, PyObject *computed) {
    Py_XSETREF(self->mapping, Py_NewRef(mapping));
    Py_XSETREF(self->num_reqs_padded, Py_NewRef(size));
    Py_XSETREF(self->computed, Py_NewRef(computed));
}

static int waits(const Waiting *self) { return self->applies || self->mapping; }

/* What an operation in C returned, or what the owner's method returns if that is NULL: an error, too,
   is left to it, since the engine goes on with its own tables then; but see `forget_error`. */
static PyObject *or_by_owner(Waiting *self, PyObject *result, PyObject *name,
                             PyObject *const *args, Py_ssize_t num, PyObject *names) {
    if (forget_error()) { /* of a note, where there is a result */
        Py_XDECREF(result);
        return NULL;
    }
    if (result) return result;
    PyObject *owner = still_there(self->owner);
    if (!owner) return NULL;
    if (self->noting && tell_python((Noting *)self->noting)) PyErr_Clear();
    result = by_python(owner, name, args, num, names);
    Py_DECREF(owner);
    return result;
}

static uint64_t begin_time(const Waiting *self) { return self->times ? now_ns() : 0; }

/* Only of calls that C makes: the owner measures its own. */
static void end_time(Waiting *self, uint64_t began) {
    if (self->times) self->spent_ns += (long long)(now_ns() - began);
}

/* Notes a call, if calls are noted. A note may end the recording, and so drop the object. What
   `forget_error` leaves is set afterwards. */
#define NOTE(WAITING, FUNCTION, ...)                                                            \
    do {                                                                                        \
        Noting *noting = (Noting *)Py_XNewRef((WAITING)->noting);                               \
        PyObject *owner = noting ? still_there((WAITING)->owner) : NULL;                        \
        if (owner) {                                                                            \
            int failed = FUNCTION(noting, ##__VA_ARGS__);                                       \
            tell_owner(noting, owner, failed);                                                  \
        }                                                                                       \
        Py_XDECREF(owner);                                                                      \
        Py_XDECREF(noting);                                                                     \
        forget_error();                                                                         \
    } while (0)

/* The arguments of an append in their order, in `given` unless only the last has its name, as the
   runner gives them. NULL where they are not plain. */
static PyObject *const *request_of(PyObject *const *args, Py_ssize_t num, PyObject *names,
                                   PyObject **given) {
    if (names ? num == 2 && PyTuple_GET_SIZE(names) == 1 &&
                    PyTuple_GET_ITEM(names, 0) == names_of.overwrite
              : num == 3)
        return args;
    const Argument wanted[] = {{names_of.req_index, &given[0]},
                               {names_of.new_block_ids, &given[1]},
                               {names_of.overwrite, &given[2]}};
    return take_arguments(wanted, 3, 3, 3, args, num, names) ? given : NULL;
}

static PyObject *waiting_append(Waiting *self, PyObject *const *args, Py_ssize_t num,
                                PyObject *names) {
    PyObject *result = NULL, *given[3];
    PyObject *const *request;
    /* After an apply that waits it must not come first. */
    if (self->is_short && !waits(self) && (request = request_of(args, num, names, given))) {
        uint64_t began = begin_time(self);
        int staged = self->staged &&
                     self->packing->append(self->staged, request[0], request[1], request[2]);
        result = staged ? Py_NewRef(Py_None)
                        : PyObject_Vectorcall(self->append, args, (size_t)num, names);
        if (result) NOTE(self, add_append, request[0], request[1], request[2]);
        if (result) end_time(self, began);
    }
    return or_by_owner(self, result, names_of.append, args, num, names);
}

static PyObject *waiting_apply(Waiting *self, PyObject *const *args, Py_ssize_t num,
                               PyObject *names) {
    if (!self->is_short || !self->in_step || waits(self) || num || names)
        return or_by_owner(self, NULL, names_of.apply, args, num, names);
    uint64_t began = begin_time(self);
    self->applies = self->has_applied = 1;
    counted.steps++;
    counted.deferred++;
    NOTE(self, add_apply);
    end_time(self, began);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *waiting_gather(Waiting *self, PyObject *const *args, Py_ssize_t num,
                                PyObject *names) {
    Given given = {0};
    PyObject *result = NULL;
    if (self->is_short && self->in_batch && !self->mapping &&
        take_gather(&given, args, num, names) && given.out == Py_None &&
        given.pointers == Py_None) {
        uint64_t began = begin_time(self);
        Step *step = step_of(self->tables, WHOLE);
        long long size;
        if (step && take_size(given.num_reqs_padded, &size))
            result = views_of(self->tables, step, TABLE_VIEWS, given.num_reqs_padded);
        /* A finaliser that ran there may have read tables, and given them back. */
        if (!self->is_short) Py_CLEAR(result);
        Py_XSETREF(self->step, step);
        if (result) {
            note_gather(self, given.mapping, given.num_reqs_padded, given.computed);
            NOTE(self, add_gather, given.mapping, given.num_reqs_padded, given.computed);
            end_time(self, began);
        }
    }
    return or_by_owner(self, result, names_of.gather, args, num, names);
}

static PyObject *waiting_slots(Waiting *self, PyObject *const *args, Py_ssize_t num,
                               PyObject *names) {
    Given given = {0};
    PyObject *slots = NULL;
    uint64_t began = begin_time(self);
    if (self->is_short && self->mapping && self->applies && take_slots(&given, args, num, names) &&
        given.slots_out == Py_None && given.mapping == self->mapping) {
        given.num_reqs_padded = self->num_reqs_padded;
        given.computed = self->computed;
        given.out = given.pointers = Py_None;
        Step *step = (Step *)Py_XNewRef(self->step);
        if (step) slots = operate_by(self->tables, step, WHOLE, &given, SLOTS);
        Py_XDECREF(step);
    }
    if (slots) {
        counted.fused++;
        self->applies = 0;
        NOTE(self, add_slots, &given);
        forget_gather(self);
        end_time(self, began);
    }
    return or_by_owner(self, slots, names_of.slots, args, num, names);
}

static PyObject *waiting_waits(Waiting *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(waits(self));
}

static PyObject *waiting_get_gather(Waiting *self, void *unused) {
    (void)unused;
    if (!self->mapping) Py_RETURN_NONE;
    return PyTuple_Pack(3, self->mapping, self->num_reqs_padded, self->computed);
}

static int waiting_set_gather(Waiting *self, PyObject *value, void *unused) {
    (void)unused;
    if (value == Py_None) {
        forget_gather(self);
        return 0;
    }
    if (!value || !PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 3) {
        PyErr_SetString(PyExc_TypeError, "expected None, or a mapping, a size and computed tokens");
        return -1;
    }
    note_gather(self, PyTuple_GET_ITEM(value, 0), PyTuple_GET_ITEM(value, 1),
                PyTuple_GET_ITEM(value, 2));
    return 0;
}

static PyObject *waiting_belong_to(Waiting *self, PyObject *owner) {
    PyObject *weak = PyWeakref_NewRef(owner, NULL);
    if (!weak) return NULL;
    Py_XSETREF(self->owner, weak);
    Py_RETURN_NONE;
}

/* Finds what the append stages in, if it is that object's own method; 1 for an error that stays, see
   `forget_error`. */
static int find_staged(Waiting *self) {
    PyObject *of = PyCFunction_Check(self->append) ? PyCFunction_GET_SELF(self->append) : NULL;
    PyObject *own = of ? PyObject_GetAttr(of, names_of.append) : NULL;
    if (own && PyObject_RichCompareBool(own, self->append, Py_EQ) == 1 &&
        (self->packing = packing_of(of)))
        self->staged = of;
    Py_XDECREF(own);
    return forget_error();
}

static PyObject *waiting_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"tables", "append", "owner", NULL};
    PyObject *tables, *append, *owner;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OOO", keywords, &tables, &append, &owner) ||
        make_names())
        return NULL;
    Waiting *self = (Waiting *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->tables = Py_NewRef(tables);
    self->append = Py_NewRef(append);
    if (find_staged(self) || !(self->owner = PyWeakref_NewRef(owner, NULL))) Py_CLEAR(self);
    return (PyObject *)self;
}

static int waiting_clear(Waiting *self) {
    self->staged = NULL;
    Py_CLEAR(self->tables);
    Py_CLEAR(self->append);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->noting);
    forget_gather(self);
    return 0;
}

static int waiting_traverse(Waiting *self, visitproc visit, void *arg) {
    Py_VISIT(self->tables);
    Py_VISIT(self->append);
    Py_VISIT(self->owner);
    Py_VISIT(self->noting);
    Py_VISIT(self->mapping);
    Py_VISIT(self->num_reqs_padded);
    Py_VISIT(self->computed);
    Py_VISIT(self->step);
    return 0;
}

static void waiting_dealloc(Waiting *self) {
    PyObject_GC_UnTrack(self);
    waiting_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef waiting_methods[] = {
    {"append_block_ids", WITH_NAMES(waiting_append), NULL},
    {"apply_staged_writes", WITH_NAMES(waiting_apply), NULL},
    {"gather_block_tables", WITH_NAMES(waiting_gather), NULL},
    {"compute_slot_mappings", WITH_NAMES(waiting_slots), NULL},
    {"belong_to", (PyCFunction)waiting_belong_to, METH_O,
     "belong_to(owner): leave what is not plain to the methods of that object."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef waiting_members[] = {
    {"in_step", T_BOOL, offsetof(Waiting, in_step), 0, "whether an apply may wait"},
    {"in_batch", T_BOOL, offsetof(Waiting, in_batch), 0, "whether a gather may wait"},
    {"applies", T_BOOL, offsetof(Waiting, applies), 0, "whether an apply waits"},
    {"times", T_BOOL, offsetof(Waiting, times), 0, "whether calls are measured"},
    {"has_applied", T_BOOL, offsetof(Waiting, has_applied), 0, "whether this step had an apply"},
    {"spent_ns", T_LONGLONG, offsetof(Waiting, spent_ns), 0, "time of this step's calls"},
    {"is_short", T_BOOL, offsetof(Waiting, is_short), 0, "whether `Around` need not call the owner"},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *waiting_get_noting(Waiting *self, void *unused) {
    (void)unused;
    return Py_NewRef(self->noting ? self->noting : Py_None);
}

static int waiting_set_noting(Waiting *self, PyObject *value, void *unused) {
    (void)unused;
    if (value && value != Py_None && Py_TYPE(value) != &NotingType) {
        PyErr_SetString(PyExc_TypeError, "expected a Noting or None");
        return -1;
    }
    if (self->noting && tell_python((Noting *)self->noting)) return -1;
    Py_XSETREF(self->noting, value && value != Py_None ? Py_NewRef(value) : NULL);
    return 0;
}

static PyGetSetDef waiting_properties[] = {
    {"noting", (getter)waiting_get_noting, (setter)waiting_set_noting,
     "where calls that C makes are noted, or None", NULL},
    {"waits", (getter)waiting_waits, NULL, "whether an apply or a gather waits", NULL},
    {"gather", (getter)waiting_get_gather, (setter)waiting_set_gather,
     "the gather that waits: its mapping, size and computed tokens; or None", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject WaitingType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Waiting",
    .tp_doc = "Waiting(tables, append, owner): an apply and a gather that may wait for slots.",
    .tp_basicsize = sizeof(Waiting),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = waiting_new,
    .tp_methods = waiting_methods,
    .tp_members = waiting_members,
    .tp_getset = waiting_properties,
    .tp_traverse = (traverseproc)waiting_traverse,
    .tp_clear = (inquiry)waiting_clear,
    .tp_dealloc = (destructor)waiting_dealloc,
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *dict;
    PyObject *method, *by_python; /* the wrapped one, and the wrapper in Python */
    int is_batch;
} Around;

/* The state of a runner's tables, a new reference, if they need no more than that; else NULL, see
   `forget_error`. */
static Waiting *waiting_of(PyObject *runner, PyObject **tables) {
    PyObject *waiting = NULL;
    *tables = PyObject_GetAttr(runner, names_of.block_tables);
    if (*tables) waiting = PyObject_GetAttr(*tables, names_of.waiting);
    if (waiting && Py_TYPE(waiting) == &WaitingType && ((Waiting *)waiting)->is_short)
        return (Waiting *)waiting;
    forget_error();
    Py_XDECREF(waiting);
    Py_CLEAR(*tables);
    return NULL;
}

static void begin_waiting(const Around *self, Waiting *waiting, PyObject *const *args,
                          Py_ssize_t num) {
    *(self->is_batch ? &waiting->in_batch : &waiting->in_step) = 1;
    if (self->is_batch) {
        NOTE(waiting, add_begin_batch, args[0], num > 1 ? args[1] : NULL);
        return;
    }
    if (waiting->times && waiting->has_applied) count_step(waiting->spent_ns);
    waiting->has_applied = 0;
    waiting->spent_ns = 0;
    NOTE(waiting, add_begin_step);
}

/* Ends a step or a batch, by the method of whatever class the tables have now if that may matter;
   -1 for an error. */
static int end_waiting(const Around *self, Waiting *waiting, PyObject *tables) {
    int left = self->is_batch ? waiting->mapping != NULL : waits(waiting);
    *(self->is_batch ? &waiting->in_batch : &waiting->in_step) = 0;
    if (waiting->is_short && !left) {
        if (self->is_batch)
            NOTE(waiting, add_end_batch);
        else
            NOTE(waiting, add_end_step, owner);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (waiting->noting) leave_end((Noting *)waiting->noting, self->is_batch);
    PyObject *type = (PyObject *)Py_TYPE(tables);
    PyObject *end = PyObject_GetAttr(type, self->is_batch ? names_of.end_batch : names_of.end_step);
    if (!end) { /* they are the engine's by now */
        PyErr_Clear();
        return 0;
    }
    PyObject *found = PyObject_CallOneArg(end, tables);
    Py_DECREF(end);
    Py_XDECREF(found);
    return found ? 0 : -1;
}

static PyObject *around_call(PyObject *object, PyObject *const *args, size_t nargsf,
                             PyObject *names) {
    Around *self = (Around *)object;
    PyObject *tables, *type, *value, *trace;
    Waiting *waiting = PyVectorcall_NARGS(nargsf) ? waiting_of(args[0], &tables) : NULL;
    if (!waiting)
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(self->by_python, args, nargsf, names);
    begin_waiting(self, waiting, args, PyVectorcall_NARGS(nargsf));
    if (PyErr_Occurred()) { /* before the method, as in Python */
        Py_DECREF(waiting);
        Py_DECREF(tables);
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(self->method, args, nargsf, names);
    PyErr_Fetch(&type, &value, &trace);
    if (end_waiting(self, waiting, tables))
        Py_CLEAR(result); /* its error is the newer one, as in Python */
    else
        PyErr_Restore(type, value, trace), type = value = trace = NULL;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_DECREF(waiting);
    Py_DECREF(tables);
    return result;
}

static PyObject *around_get(PyObject *self, PyObject *runner, PyObject *type) {
    (void)type;
    return runner && runner != Py_None ? PyMethod_New(self, runner) : Py_NewRef(self);
}

static PyObject *around_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"method", "by_python", "is_batch", NULL};
    PyObject *method, *by_python;
    int is_batch;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OOp", keywords, &method, &by_python, &is_batch) ||
        make_names())
        return NULL;
    Around *self = (Around *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->call = around_call;
    self->method = Py_NewRef(method);
    self->by_python = Py_NewRef(by_python);
    self->is_batch = is_batch;
    return (PyObject *)self;
}

static int around_clear(Around *self) {
    Py_CLEAR(self->dict);
    Py_CLEAR(self->method);
    Py_CLEAR(self->by_python);
    return 0;
}

static int around_traverse(Around *self, visitproc visit, void *arg) {
    Py_VISIT(self->dict);
    Py_VISIT(self->method);
    Py_VISIT(self->by_python);
    return 0;
}

static void around_dealloc(Around *self) {
    PyObject_GC_UnTrack(self);
    around_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyGetSetDef around_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject AroundType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Around",
    .tp_doc = "Around(method, by_python, is_batch): a method of a runner within which its tables may\n"
              "wait: an apply, or a gather if it is of batches. Tables with more to do there get\n"
              "that by the other function.",
    .tp_basicsize = sizeof(Around),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = around_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Around, call),
    .tp_dictoffset = offsetof(Around, dict),
    .tp_getset = around_properties,
    .tp_descr_get = around_get,
    .tp_traverse = (traverseproc)around_traverse,
    .tp_clear = (inquiry)around_clear,
    .tp_dealloc = (destructor)around_dealloc,
};
