/* Noting: notes of an engine's calls in the frame of a recording, as the classes of `recorded.py`
   make them in Python; and times of steps, as `HostTimes` has them. */

#include <time.h>

/* As in recordings.py. */
enum { NOTED_APPEND = 1, NOTED_OVERWRITE, NOTED_APPLY, NOTED_GATHER, NOTED_SLOTS };
enum { NOTED_BEGIN = 9, NOTED_END };
enum { NOTED_ROWS = 1, NOTED_STARTS = 2, NOTED_FIRSTS = 4, NOTED_COMPUTED = 16, NOTED_MASKS = 32,
       NOTED_SAME_ROWS = 64, NOTED_COMPUTED_FIRSTS = 128 };
#define FRAME_NS 1000000000

enum { MAPPING_OF, ROWS_OF, COMPUTED_OF, STARTS_OF, NUM_KNOWN };

typedef struct {
    PyObject_HEAD
    PyObject *notes, *frame, *batches; /* a `Notes`, its `Frame`, and the batches of the runner */
    PyObject *ints, *arrays;           /* of the frame */
    PyObject *end_frame, *fail;
    PyObject *known; /* of the runner's latest batch; or NULL */
    char inside;     /* whether the runner is in it */
    char gathered;   /* whether its gather is noted here */
    char masks;      /* whether that had computed tokens */
    /* What the objects in Python do not know yet; see `tell_python`. */
    char has_batch, has_gather, has_staged, staged, in_step, told_in_step;
    long long num_steps, frame_steps; /* since the last frame, and after which there is one */
    uint64_t ended_ns; /* when the last frame did */
} Noting;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int add_int(Noting *self, long value) {
    PyObject *number = PyLong_FromLong(value);
    int failed = !number || PyList_Append(self->ints, number);
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

static int tell(PyObject *object, PyObject *name, int value) {
    return PyObject_SetAttr(object, name, value ? Py_True : Py_False);
}

/* Tells the objects in Python what notes of Python need: not earlier, since that takes as long as the
   notes. -1 for an error. */
static int tell_python(Noting *self) {
    int failed = 0;
    if (self->has_staged) failed |= tell(self->frame, names_of.staged, self->staged);
    if (self->has_gather) {
        int position = self->masks ? COMPUTED_OF : -1;
        PyObject *computed = position < 0 ? Py_None : PyTuple_GET_ITEM(self->known, position);
        failed |= PyObject_SetAttr(self->frame, names_of.rows,
                                   PyTuple_GET_ITEM(self->known, ROWS_OF)) |
                  PyObject_SetAttr(self->frame, names_of.computed, computed);
    }
    if (self->has_batch) {
        PyObject *latest = PyTuple_Pack(1, self->known);
        failed |= !latest || PyObject_SetAttr(self->batches, names_of.latest, latest);
        failed |= tell(self->batches, names_of.inside, self->inside);
        Py_XDECREF(latest);
    }
    if (self->in_step != self->told_in_step)
        failed |= tell(self->notes, names_of.in_step, self->in_step);
    self->told_in_step = self->in_step;
    self->has_staged = self->has_gather = self->has_batch = 0;
    return failed ? -1 : 0;
}

static int add_operation(Noting *self, long code, long flags, long num_reqs, PyObject *padded) {
    return add_int(self, code) || add_int(self, flags) || add_int(self, num_reqs) ||
                   PyList_Append(self->ints, padded) || add_int(self, -1)
               ? -1
               : 0;
}

static int done_by(PyObject *result) {
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int add_append(Noting *self, PyObject *row, PyObject *ids, PyObject *overwrite) {
    int overwrites = PyObject_IsTrue(overwrite);
    int is_plain = PyTuple_Check(ids) || PyList_Check(ids);
    for (Py_ssize_t i = 0; is_plain && i < PySequence_Fast_GET_SIZE(ids); i++)
        is_plain = PyList_Check(PySequence_Fast_GET_ITEM(ids, i)) ||
                   PyTuple_Check(PySequence_Fast_GET_ITEM(ids, i));
    if (overwrites < 0) return -1;
    if (!is_plain)
        return done_by(PyObject_CallMethod(self->frame, "append", "OOO", row, ids, overwrite));
    self->has_staged = self->staged = 1;
    if (add_int(self, overwrites ? NOTED_OVERWRITE : NOTED_APPEND) ||
        PyList_Append(self->ints, row))
        return -1;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(ids); i++) {
        PyObject *group = PySequence_Fast_GET_ITEM(ids, i);
        if (add_int(self, (long)PySequence_Fast_GET_SIZE(group))) return -1;
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(group); j++)
            if (PyList_Append(self->ints, PySequence_Fast_GET_ITEM(group, j))) return -1;
    }
    return 0;
}

static int add_apply(Noting *self) {
    self->has_staged = 1;
    self->staged = 0;
    return add_int(self, NOTED_APPLY);
}

/* Whether a mapping is that of the batch which the runner is in, whose arrays are on the host. */
static int is_known(const Noting *self, PyObject *mapping) {
    return self->inside && self->known && PyTuple_GET_ITEM(self->known, MAPPING_OF) == mapping;
}

static int add_gather(Noting *self, PyObject *mapping, PyObject *padded, PyObject *computed) {
    if (!is_known(self, mapping) ||
        (computed != Py_None && PyTuple_GET_ITEM(self->known, COMPUTED_OF) == Py_None)) {
        if (tell_python(self)) return -1; /* or it takes an earlier gather for the last one */
        self->gathered = 0;
        return done_by(PyObject_CallMethod(self->notes, "gather", "OOOO", mapping, padded, Py_None,
                                           computed));
    }
    PyObject *rows = PyTuple_GET_ITEM(self->known, ROWS_OF);
    /* Those of an earlier gather are not this one's, whether Python is told of it or not. */
    PyObject *before = PyObject_GetAttr(self->frame, names_of.rows);
    Py_XDECREF(before);
    if (before != Py_None && (PyObject_SetAttr(self->frame, names_of.rows, Py_None) ||
                              PyObject_SetAttr(self->frame, names_of.computed, Py_None)))
        return -1;
    self->masks = computed != Py_None;
    self->has_gather = self->gathered = 1;
    long flags = NOTED_ROWS | (self->masks ? NOTED_MASKS | NOTED_COMPUTED : 0);
    return PyList_Append(self->arrays, rows) ||
                   (self->masks &&
                    PyList_Append(self->arrays, PyTuple_GET_ITEM(self->known, COMPUTED_OF))) ||
                   add_operation(self, NOTED_GATHER, flags, PySequence_Size(rows), padded)
               ? -1
               : 0;
}

/* After `add_gather` with the same mapping. */
static int add_slots(Noting *self, const Given *given) {
    if (!is_known(self, given->mapping) || !self->gathered)
        return tell_python(self) ? -1 : done_by(PyObject_CallMethod(self->notes, "slots", "OOOOO", given->mapping,
                                           given->starts, given->positions,
                                           given->num_tokens_padded, Py_None));
    PyObject *rows = PyTuple_GET_ITEM(self->known, ROWS_OF);
    PyObject *firsts = PyTuple_GET_ITEM(self->known, COMPUTED_OF);
    int has_firsts = firsts != Py_None && !self->masks;
    long flags = NOTED_SAME_ROWS | NOTED_STARTS | (self->masks ? NOTED_COMPUTED_FIRSTS : 0) |
                 (has_firsts ? NOTED_FIRSTS : 0);
    return PyList_Append(self->arrays, PyTuple_GET_ITEM(self->known, STARTS_OF)) ||
                   (has_firsts && PyList_Append(self->arrays, firsts)) ||
                   add_operation(self, NOTED_SLOTS, flags, PySequence_Size(rows),
                                 given->num_tokens_padded)
               ? -1
               : 0;
}

static int add_begin_step(Noting *self) {
    self->in_step = 1;
    return add_int(self, NOTED_BEGIN);
}

static int add_end_step(Noting *self, PyObject *owner) {
    self->in_step = 0;
    if (add_int(self, NOTED_END)) return -1;
    uint64_t now = now_ns();
    self->num_steps++;
    int is_due = self->num_steps >= self->frame_steps || now - self->ended_ns >= FRAME_NS;
    if (!is_due && !self->told_in_step) return 0;
    if (tell_python(self)) return -1;
    if (!is_due) return 0;
    long long num_steps = self->num_steps;
    self->num_steps = 0;
    self->ended_ns = now;
    return done_by(PyObject_CallFunction(self->end_frame, "OL", owner, num_steps));
}

/* What the notes keep of a batch, as `_known` of noting.py; NULL if it lacks anything. */
static PyObject *known_of(PyObject *batch) {
    PyObject *names[NUM_KNOWN] = {names_of.idx_mapping, names_of.idx_mapping_np,
                                  names_of.num_computed_tokens_np, names_of.query_start_loc_np};
    PyObject *known = PyTuple_New(NUM_KNOWN);
    for (int i = 0; known && i < NUM_KNOWN; i++) {
        PyObject *found = PyObject_GetAttr(batch, names[i]);
        if (found)
            PyTuple_SET_ITEM(known, i, found);
        else
            Py_CLEAR(known);
    }
    Py_ssize_t num_reqs = known ? PySequence_Size(PyTuple_GET_ITEM(known, ROWS_OF)) : -1;
    PyObject *starts = NULL;
    if (num_reqs >= 0 && PySequence_Size(PyTuple_GET_ITEM(known, STARTS_OF)) == num_reqs + 1)
        return known;
    if (num_reqs >= 0)
        starts = PySequence_GetSlice(PyTuple_GET_ITEM(known, STARTS_OF), 0, num_reqs + 1);
    if (!starts) {
        forget_error();
        Py_XDECREF(known);
        return NULL;
    }
    Py_DECREF(PyTuple_GET_ITEM(known, STARTS_OF));
    PyTuple_SET_ITEM(known, STARTS_OF, starts);
    return known;
}

static int add_begin_batch(Noting *self, PyObject *runner, PyObject *batch) {
    PyObject *manager = PyObject_GetAttr(runner, names_of.pcp_manager);
    int is_alone = !manager || manager == Py_None;
    Py_XDECREF(manager);
    if (forget_error()) return -1;
    self->has_gather = self->gathered = 0;
    self->inside = 1;
    Py_XSETREF(self->known, batch && is_alone ? known_of(batch) : NULL);
    self->has_batch = self->known != NULL;
    if (self->known) return 0;
    if (PyErr_Occurred()) return -1;
    return done_by(PyObject_CallMethod(self->notes, "begin_batch", "OO", runner,
                                       batch ? batch : Py_None));
}

static int add_end_batch(Noting *self) {
    self->inside = 0;
    if (!self->known) return tell(self->batches, names_of.inside, 0);
    self->has_batch = 1;
    return 0;
}

/* Has Python code end a batch, or else a step, which C began. */
static void leave_end(Noting *self, int is_batch) {
    *(is_batch ? &self->inside : &self->in_step) = 0;
    if (tell_python(self)) PyErr_Clear();
}

/* Tells of an error of a note, if there is one, which the engine must not see; see `forget_error`. */
static void tell_owner(Noting *self, PyObject *owner, int failed) {
    if (!failed || !PyErr_ExceptionMatches(PyExc_Exception)) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *found = PyObject_CallFunctionObjArgs(self->fail, owner, value ? value : Py_None, NULL);
    Py_XDECREF(found);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static int noting_clear(Noting *self) {
    Py_CLEAR(self->notes);
    Py_CLEAR(self->frame);
    Py_CLEAR(self->batches);
    Py_CLEAR(self->ints);
    Py_CLEAR(self->arrays);
    Py_CLEAR(self->end_frame);
    Py_CLEAR(self->fail);
    Py_CLEAR(self->known);
    return 0;
}

static int noting_traverse(Noting *self, visitproc visit, void *arg) {
    Py_VISIT(self->notes);
    Py_VISIT(self->frame);
    Py_VISIT(self->batches);
    Py_VISIT(self->ints);
    Py_VISIT(self->arrays);
    Py_VISIT(self->end_frame);
    Py_VISIT(self->fail);
    Py_VISIT(self->known);
    return 0;
}

static void noting_dealloc(Noting *self) {
    PyObject_GC_UnTrack(self);
    noting_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *noting_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"notes",     "frame", "batches",     "ints", "arrays",
                               "end_frame", "fail",  "frame_steps", NULL};
    PyObject *notes, *frame, *batches, *ints, *arrays, *end_frame, *fail;
    long long frame_steps;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OOOO!O!OOL", keywords, &notes, &frame, &batches,
                                     &PyList_Type, &ints, &PyList_Type, &arrays, &end_frame, &fail,
                                     &frame_steps) ||
        make_names())
        return NULL;
    Noting *self = (Noting *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->notes = Py_NewRef(notes);
    self->frame = Py_NewRef(frame);
    self->batches = Py_NewRef(batches);
    self->ints = Py_NewRef(ints);
    self->arrays = Py_NewRef(arrays);
    self->end_frame = Py_NewRef(end_frame);
    self->fail = Py_NewRef(fail);
    self->frame_steps = frame_steps;
    self->ended_ns = now_ns();
    return (PyObject *)self;
}

static PyTypeObject NotingType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Noting",
    .tp_doc = "Noting(notes, frame, batches, ints, arrays, end_frame, fail, frame_steps): notes of\n"
              "calls that C makes, where those of Python go.",
    .tp_basicsize = sizeof(Noting),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = noting_new,
    .tp_traverse = (traverseproc)noting_traverse,
    .tp_clear = (inquiry)noting_clear,
    .tp_dealloc = (destructor)noting_dealloc,
};

/* Counts of this process, which are kept when tables are gone. */

#define PER_OCTAVE 16 /* as in host_times.py */

static struct {
    long long steps, deferred, fused; /* calls of apply, those that waited, steps in one call */
    long long timed, total_ns, max_ns;
    long long buckets[64 * PER_OCTAVE + 1];
} counted;

/* The least multiple of a sixteenth that is no less than the binary logarithm. */
static int bucket_of(uint64_t ns) {
    if (ns < 2) return 0;
    int whole = 63 - __builtin_clzll(ns), part = 0;
    double ratio = (double)ns / (double)((uint64_t)1 << whole), edge = 1;
    while (part < PER_OCTAVE && edge < ratio) {
        edge *= 1.0442737824274138; /* the sixteenth root of 2 */
        part++;
    }
    return whole * PER_OCTAVE + part;
}

static void count_step(long long ns) {
    counted.timed++;
    counted.total_ns += ns;
    if (ns > counted.max_ns) counted.max_ns = ns;
    counted.buckets[bucket_of((uint64_t)ns)]++;
}

static PyObject *counts(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_BuildValue("LLL", counted.steps, counted.deferred, counted.fused);
}

static PyObject *step_times(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    PyObject *buckets = PyDict_New();
    for (int i = 0; buckets && i <= 64 * PER_OCTAVE; i++) {
        if (!counted.buckets[i]) continue;
        PyObject *key = PyLong_FromLong(i), *value = PyLong_FromLongLong(counted.buckets[i]);
        if (!key || !value || PyDict_SetItem(buckets, key, value)) Py_CLEAR(buckets);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return buckets ? Py_BuildValue("LLLN", counted.timed, counted.total_ns, counted.max_ns, buckets)
                   : NULL;
}

static PyObject *forget_counts(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    memset(&counted, 0, sizeof(counted));
    Py_RETURN_NONE;
}
