/* Inputs: the preparation of a batch, as engines call it, without a Python frame on the way to the
   launch. What is not plain is left to the methods of the class. */

#define ROW_BITS 48
#define LOGIT_BITS 27
#define NUM_ROOMS 2
#define NUM_NEW 5 /* outputs that are new in each step */
#define NUM_ARGUMENTS 7

/* Fields of the inputs, behind the requests, that change from step to step; as in fields.py. */
enum { NEW_OUTPUTS, NUM_PADDED = NUM_NEW, HAS_PREFILL };

/* In the order in which `batch_inputs/native_inputs.py` gives them. */
typedef struct {
    long long rooms[NUM_ROOMS]; /* requests that a launch has words for */
    long long few, span;        /* requests, or tokens, of a program */
    long long max_num_reqs, max_num_tokens, max_drafts, bonus;
    long long computed; /* address of the computed tokens; 0 without a sliding window */
} InputSizes;

/* Python functions and objects, in the order in which they are given. */
enum {
    BATCH,            /* class of what is returned */
    EMPTY,            /* numpy's function */
    INT32,            /* numpy's dtype */
    NEW_ROWS,         /* function that returns a new int64 tensor of a size */
    CONSTANTS,        /* function that returns what a step of one logit each has, by its requests */
    OUTPUTS,          /* function that returns new tensors and their addresses */
    VIEWS_OF_TOKENS,  /* functions that return views of persistent outputs, by a size */
    VIEWS_OF_REQUESTS,
    NUM_HELPERS,
};

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* weak, since it has these methods */
    PyObject *tables, *quick; /* the tables, and their step when this was made */
    Step *steps[NUM_ROOMS];
    PyObject *helpers[NUM_HELPERS];
    InputSizes is;
    long long num_written; /* batches whose words were written */
} Inputs;

static struct {
    PyObject *prepare, *prepare_inputs, *arguments[NUM_ARGUMENTS];
} input_names;

/* A batch on its way: what was given, and what is returned. */
typedef struct {
    PyObject *given[NUM_ARGUMENTS];
    Py_buffer rows, lengths, drafts;
    PyObject *starts, *counts; /* numpy's, on the host */
    PyObject *tensors[NUM_NEW];
    long long num_reqs, num_tokens, num_logits, longest, padded_reqs, padded_tokens;
} Prepared;

enum { ROWS, QUERY_LENS, PREFILL_LENS, IN_PREFILL, DRAFTS, PADDED_REQS, PADDED_TOKENS };

static void release(Prepared *batch) {
    Py_buffer *views[] = {&batch->rows, &batch->lengths, &batch->drafts};
    for (int i = 0; i < 3; i++)
        if (views[i]->obj) PyBuffer_Release(views[i]);
    Py_XDECREF(batch->starts);
    Py_XDECREF(batch->counts);
    for (int i = 0; i < NUM_NEW; i++) Py_XDECREF(batch->tensors[i]);
}

/* A vector of integers of a size, side by side. */
static int take_vector(PyObject *object, Py_ssize_t itemsize, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT)) {
        view->obj = NULL;
        PyErr_Clear();
        return 0;
    }
    return view->ndim == 1 && view->itemsize == itemsize && view->format &&
           strchr(itemsize == 8 ? "lq" : "il", view->format[0]) && !view->format[1];
}

/* A new int32 array on the host, and its elements; NULL for an error. */
static int32_t *new_array(Inputs *self, long long size, PyObject **array) {
    Py_buffer view;
    PyObject *number = PyLong_FromLongLong(size);
    PyObject *given[] = {NULL, number, self->helpers[INT32]};
    *array = number ? PyObject_Vectorcall(self->helpers[EMPTY], given + 1,
                                          2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
                    : NULL;
    Py_XDECREF(number);
    if (!*array || PyObject_GetBuffer(*array, &view, PyBUF_WRITABLE)) return NULL;
    int32_t *elements = view.buf;
    PyBuffer_Release(&view); /* nobody else has it, so they stay */
    return elements;
}

/* Writes the words of requests, and the arrays on the host. 0 where Python code has to refuse. */
static int write_requests(Inputs *self, Step *step, Prepared *batch) {
    const InputSizes *is = &self->is;
    const int64_t *rows = batch->rows.buf;
    const int32_t *lengths = batch->lengths.buf, *drafts = batch->drafts.obj ? batch->drafts.buf : NULL;
    uint64_t *words = step->words.buf;
    int32_t *starts = new_array(self, batch->padded_reqs + 1, &batch->starts);
    int32_t *counts = starts ? new_array(self, batch->num_reqs + 1, &batch->counts) : NULL;
    if (!counts) return -1;
    long long start = 0, logit = 0, longest = 0, num_reqs = batch->num_reqs;
    for (long long i = 0; i < num_reqs; i++) {
        uint64_t row = (uint64_t)rows[i];
        long long length = lengths[i], num_drafts = drafts ? drafts[i] : 0;
        if (row >= (uint64_t)is->max_num_reqs || length < 0 || num_drafts < 0 ||
            num_drafts > is->max_drafts || start > is->max_num_tokens)
            return 0;
        starts[i] = (int32_t)start;
        counts[i] = (int32_t)logit;
        words[i] = row << ROW_BITS | (uint64_t)logit << LOGIT_BITS | (uint64_t)start;
        start += length;
        logit += is->bonus + num_drafts;
        if (length > longest) longest = length;
    }
    if (start < 1 || start > batch->padded_tokens) return 0;
    words[num_reqs] = (uint64_t)logit << LOGIT_BITS | (uint64_t)start;
    counts[num_reqs] = (int32_t)logit;
    for (long long i = num_reqs; i <= batch->padded_reqs; i++) starts[i] = (int32_t)start;
    batch->num_tokens = start;
    batch->num_logits = logit;
    batch->longest = longest;
    return 1;
}

/* Outputs of a step with one token and one logit for each request: only the rows are new. */
static int new_rows(Inputs *self, Step *step, Prepared *batch, uint64_t *addresses) {
    Tensor found;
    PyObject *number = PyLong_FromLongLong(batch->num_reqs);
    if (!number) return -1;
    PyObject *rows = PyObject_CallOneArg(self->helpers[NEW_ROWS], number);
    PyObject *same = rows ? PyObject_CallOneArg(self->helpers[CONSTANTS], number) : NULL;
    Py_DECREF(number);
    batch->tensors[0] = rows;
    batch->tensors[1] = Py_XNewRef(rows);
    if (!same) return -1;
    int fits = PyTuple_CheckExact(same) && PyTuple_GET_SIZE(same) == 3;
    const int places[] = {3, 2, 4}; /* cu_num_logits, expanded_local_pos, logits_indices */
    for (int i = 0; fits && i < 3; i++)
        batch->tensors[places[i]] = Py_NewRef(PyTuple_GET_ITEM(same, i));
    Py_DECREF(same);
    if (!fits || !look_at(step, rows, 1, 64, &found)) return 0;
    memset(addresses, 0, NUM_NEW * sizeof(uint64_t));
    addresses[0] = address_in(&found);
    return 1;
}

/* Outputs of any other step, from Python. */
static int new_outputs(Inputs *self, Prepared *batch, uint64_t *addresses) {
    PyObject *made = PyObject_CallFunction(self->helpers[OUTPUTS], "LLLO", batch->num_reqs,
                                           batch->num_tokens, batch->num_logits,
                                           batch->given[DRAFTS] == Py_None ? Py_False : Py_True);
    PyObject *tensors, *places;
    if (!made) return -1;
    int fits = PyArg_ParseTuple(made, "O!O", &PyTuple_Type, &tensors, &places) &&
               PyTuple_Check(places) && PyTuple_GET_SIZE(tensors) == NUM_NEW &&
               PyTuple_GET_SIZE(places) == NUM_NEW;
    for (int i = 0; fits && i < NUM_NEW; i++) {
        batch->tensors[i] = Py_NewRef(PyTuple_GET_ITEM(tensors, i));
        addresses[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(places, i));
    }
    Py_DECREF(made);
    return PyErr_Occurred() ? -1 : fits;
}

/* Takes the arguments of a call. 0 where Python code has to look at them. */
static int take_batch(Inputs *self, PyObject *const *args, Py_ssize_t num, PyObject *names,
                      Prepared *batch) {
    Argument wanted[NUM_ARGUMENTS];
    for (int i = 0; i < NUM_ARGUMENTS; i++) {
        wanted[i].name = input_names.arguments[i];
        wanted[i].place = &batch->given[i];
    }
    PyObject *const *given = batch->given;
    if (!take_arguments(wanted, NUM_ARGUMENTS, NUM_ARGUMENTS, NUM_ARGUMENTS, args, num, names) ||
        !take_size(given[PADDED_REQS], &batch->padded_reqs) ||
        !take_size(given[PADDED_TOKENS], &batch->padded_tokens) ||
        !take_vector(given[ROWS], 8, &batch->rows) ||
        !take_vector(given[QUERY_LENS], 4, &batch->lengths) ||
        (given[DRAFTS] != Py_None && !take_vector(given[DRAFTS], 4, &batch->drafts)))
        return 0;
    const InputSizes *is = &self->is;
    batch->num_reqs = batch->rows.shape[0];
    return batch->lengths.shape[0] == batch->num_reqs && batch->num_reqs > 0 &&
           (!batch->drafts.obj || batch->drafts.shape[0] == batch->num_reqs) &&
           batch->num_reqs <= batch->padded_reqs && batch->padded_reqs <= is->max_num_reqs &&
           batch->padded_tokens <= is->max_num_tokens &&
           batch->num_reqs <= is->rooms[NUM_ROOMS - 1];
}

/* Plans a step, or its inputs alone. 0 where Python code has to handle it. */
static int plan_batch(Inputs *self, Step *step, int part, PyObject *dirty, const Prepared *batch,
                      Plan *plan) {
    const InputSizes *is = &self->is;
    uint64_t *leading = plan->leading;
    for (int i = DESCRIPTORS; i <= POSITIONS; i++) leading[i] = (uint64_t)step->is.descriptors;
    leading[STAGING] = (uint64_t)step->is.descriptors;
    leading[INDEX_STEP] = 1;
    leading[NUM_REQS] = (uint64_t)batch->num_reqs;
    plan->num_inputs = divided_up(batch->num_reqs, is->few) + 1 +
                       divided_up(batch->padded_tokens, is->span);
    if (part == INPUTS) return 1;
    long long num_dirty, num_rows = batch->padded_reqs;
    if (!take_size(dirty, &num_dirty) || num_dirty > step->is.max_num_reqs) return 0;
    leading[NUM_ROWS] = (uint64_t)(num_dirty > num_rows ? num_dirty : num_rows);
    leading[COMPUTED] = (uint64_t)is->computed;
    leading[NUM_SLOTS] = (uint64_t)step->is.max_num_tokens;
    leading[NUM_PADS] = (uint64_t)pads_of(step, step->is.max_num_tokens);
    plan->has_options = step->is.sharded || step->is.has_window;
    plan->is_aligned = step->is.aligned != 0;
    /* Tiles map all tokens of a step whose requests have few. */
    int has_few = batch->longest * step->is.requests[MANY] <= step->is.tokens[FEW] &&
                  batch->longest * step->is.requests[MANY] <= step->is.tokens[MANY];
    cut(step, has_few ? 0 : batch->num_tokens, step->packing->longest(step->staged), 1, plan);
    return 1;
}

/* What a call returns. */
static PyObject *batch_of(Inputs *self, Step *step, int part, Prepared *batch) {
    PyObject *fields = PyTuple_New(15), *none = PyTuple_New(0), *result = NULL;
    PyObject *of_tokens =
        PyObject_CallOneArg(self->helpers[VIEWS_OF_TOKENS], batch->given[PADDED_TOKENS]);
    PyObject *of_requests =
        PyObject_CallOneArg(self->helpers[VIEWS_OF_REQUESTS], batch->given[PADDED_REQS]);
    if (!fields || !none || !of_tokens || !of_requests) goto end;
    if (!PyTuple_CheckExact(of_tokens) || PyTuple_GET_SIZE(of_tokens) != 3 ||
        !PyTuple_CheckExact(of_requests) || PyTuple_GET_SIZE(of_requests) != 2) {
        PyErr_SetString(PyExc_TypeError, "expected views of three tensors, and of two");
        goto end;
    }
    Py_ssize_t place = 0;
    for (int i = 0; i < NUM_NEW; i++)
        PyTuple_SET_ITEM(fields, place++, Py_NewRef(batch->tensors[i]));
    for (int i = 0; i < 3; i++)
        PyTuple_SET_ITEM(fields, place++, Py_NewRef(PyTuple_GET_ITEM(of_tokens, i)));
    for (int i = 0; i < 2; i++)
        PyTuple_SET_ITEM(fields, place++, Py_NewRef(PyTuple_GET_ITEM(of_requests, i)));
    PyTuple_SET_ITEM(fields, place++, Py_NewRef(batch->starts));
    PyTuple_SET_ITEM(fields, place++, Py_NewRef(batch->counts));
    long long num_drafts = batch->drafts.obj ? batch->num_logits - self->is.bonus * batch->num_reqs : 0;
    PyObject *rest[] = {PyLong_FromLongLong(num_drafts), NULL, NULL};
    if (part == INPUTS) {
        rest[1] = Py_NewRef(none);
        rest[2] = Py_NewRef(Py_None);
    } else {
        rest[1] = views_of(self->tables, step, TABLE_VIEWS, batch->given[PADDED_REQS]);
        rest[2] = views_of(self->tables, step, SLOT_VIEWS, batch->given[PADDED_TOKENS]);
    }
    for (int i = 0; i < 3; i++) PyTuple_SET_ITEM(fields, place++, rest[i]);
    if (!rest[0] || !rest[1] || !rest[2]) goto end;
    /* As `tuple.__new__`, which is all that a named tuple's does. */
    PyObject *arguments = PyTuple_Pack(1, fields);
    if (arguments)
        result = PyTuple_Type.tp_new((PyTypeObject *)self->helpers[BATCH], arguments, NULL);
    Py_XDECREF(arguments);
end:
    Py_XDECREF(fields);
    Py_XDECREF(none);
    Py_XDECREF(of_tokens);
    Py_XDECREF(of_requests);
    return result;
}

/* Whether the owner's batches may be prepared in C now. */
static int may_prepare(Inputs *self, PyObject *owner) {
    PyObject *validates = PyObject_GetAttr(owner, names_of.validate);
    Py_XDECREF(validates);
    Step *step = validates == Py_False ? step_of(self->tables, WHOLE) : NULL;
    int is_same = (PyObject *)step == self->quick; /* else the tables were replaced */
    Py_XDECREF(step);
    PyErr_Clear();
    return step && is_same;
}

/* Prepares a batch; NULL without an error where Python code has to handle it. */
static PyObject *prepare_in_c(Inputs *self, PyObject *owner, int part, PyObject *const *args,
                              Py_ssize_t num, PyObject *names) {
    Prepared batch = {0};
    Plan plan = {0};
    PyObject *dirty = NULL, *result = NULL;
    if (!may_prepare(self, owner) || !take_batch(self, args, num, names, &batch)) goto end;
    int room = batch.num_reqs > self->is.rooms[0];
    Step *step = self->steps[room];
    if (part != INPUTS && !(dirty = PyObject_GetAttr(self->tables, names_of.dirty))) goto end;
    int has_prefill = PyObject_IsTrue(batch.given[IN_PREFILL]);
    uint64_t *fields = (uint64_t *)step->words.buf + self->is.rooms[room] + 1;
    uint64_t addresses[NUM_NEW];
    int done = has_prefill < 0 ? -1 : write_requests(self, step, &batch);
    long long mine = ++self->num_written;
    int is_plain = self->is.bonus == 1 && batch.given[DRAFTS] == Py_None &&
                   batch.num_tokens == batch.num_reqs;
    if (done == 1)
        done = is_plain ? new_rows(self, step, &batch, addresses)
                        : new_outputs(self, &batch, addresses);
    /* To allocate runs other code, such as the garbage collector's, which may prepare a batch. */
    if (done == 1 && mine != self->num_written) done = 0;
    if (done == 1) done = plan_batch(self, step, part, dirty, &batch, &plan);
    if (done == 1) {
        memcpy(fields + NEW_OUTPUTS, addresses, sizeof(addresses));
        fields[NUM_PADDED] = (uint64_t)batch.padded_tokens;
        fields[HAS_PREFILL] = (uint64_t)has_prefill;
        done = launch_planned(step, part, &plan);
    }
    if (done == 1 && part != INPUTS) {
        PyObject *num_reqs = PyLong_FromLongLong(batch.num_reqs);
        if (!num_reqs || PyObject_SetAttr(self->tables, names_of.dirty, num_reqs)) done = -1;
        Py_XDECREF(num_reqs);
    }
    if (done == 1) result = batch_of(self, step, part, &batch);
end:
    Py_XDECREF(dirty);
    release(&batch);
    return result;
}

static PyObject *inputs_call(Inputs *self, int part, PyObject *name, PyObject *const *args,
                             Py_ssize_t num, PyObject *names) {
    PyObject *owner = still_there(self->owner);
    if (!owner) return NULL;
    PyObject *result = prepare_in_c(self, owner, part, args, num, names);
    if (!result && !PyErr_Occurred()) result = by_python(owner, name, args, num, names);
    Py_DECREF(owner);
    return result;
}

static PyObject *inputs_prepare(Inputs *self, PyObject *const *args, Py_ssize_t num,
                                PyObject *names) {
    return inputs_call(self, WHOLE, input_names.prepare, args, num, names);
}

static PyObject *inputs_prepare_inputs(Inputs *self, PyObject *const *args, Py_ssize_t num,
                                       PyObject *names) {
    return inputs_call(self, INPUTS, input_names.prepare_inputs, args, num, names);
}

static int make_input_names(void) {
    const char *arguments[NUM_ARGUMENTS] = {"rows",       "query_lens",      "prefill_lens",
                                            "has_prefill", "num_drafts",     "num_reqs_padded",
                                            "num_tokens_padded"};
    if (make_names()) return -1;
    if (input_names.prepare_inputs) return 0;
    for (int i = 0; i < NUM_ARGUMENTS; i++)
        if (!(input_names.arguments[i] = PyUnicode_InternFromString(arguments[i]))) return -1;
    input_names.prepare = PyUnicode_InternFromString("prepare");
    input_names.prepare_inputs = PyUnicode_InternFromString("prepare_inputs");
    return input_names.prepare && input_names.prepare_inputs ? 0 : -1;
}

static int inputs_clear(Inputs *self) {
    Py_CLEAR(self->owner);
    Py_CLEAR(self->tables);
    Py_CLEAR(self->quick);
    for (int i = 0; i < NUM_ROOMS; i++) Py_CLEAR(self->steps[i]);
    for (int i = 0; i < NUM_HELPERS; i++) Py_CLEAR(self->helpers[i]);
    return 0;
}

static int inputs_traverse(Inputs *self, visitproc visit, void *arg) {
    Py_VISIT(self->tables);
    Py_VISIT(self->quick);
    for (int i = 0; i < NUM_ROOMS; i++) Py_VISIT(self->steps[i]);
    for (int i = 0; i < NUM_HELPERS; i++) Py_VISIT(self->helpers[i]);
    return 0;
}

static void inputs_dealloc(Inputs *self) {
    PyObject_GC_UnTrack(self);
    inputs_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Whether sizes, and the words of steps, fit each other. */
static int sizes_fit(const Inputs *self) {
    const InputSizes *is = &self->is;
    int fit = is->few > 0 && is->span > 0 && is->max_num_tokens < 1LL << LOGIT_BITS &&
              is->max_num_reqs < 1 << 15 && is->rooms[0] <= is->rooms[1];
    for (int i = 0; i < NUM_ROOMS; i++)
        fit = fit && is->rooms[i] > 0 &&
              self->steps[i]->is.begin > is->rooms[i] + 1 + HAS_PREFILL &&
              self->steps[i]->is.max_num_reqs == is->max_num_reqs;
    return fit;
}

static PyObject *inputs_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"owner", "tables", "steps", "constants", "helpers", NULL};
    PyObject *owner, *tables, *first, *second, *helpers;
    Py_buffer constants;
    if (make_input_names() ||
        !PyArg_ParseTupleAndKeywords(args, names, "OO(O!O!)y*O!", keywords, &owner, &tables,
                                     &StepType, &first, &StepType, &second, &constants,
                                     &PyTuple_Type, &helpers))
        return NULL;
    Inputs *self = (Inputs *)type->tp_alloc(type, 0);
    int fits = self && constants.len == (Py_ssize_t)sizeof(InputSizes) &&
               PyTuple_GET_SIZE(helpers) == NUM_HELPERS && PyType_Check(PyTuple_GET_ITEM(helpers, BATCH)) &&
               PyType_IsSubtype((PyTypeObject *)PyTuple_GET_ITEM(helpers, BATCH), &PyTuple_Type);
    if (fits) memcpy(&self->is, constants.buf, sizeof(InputSizes));
    PyBuffer_Release(&constants);
    if (!self) return NULL;
    self->steps[0] = (Step *)Py_NewRef(first);
    self->steps[1] = (Step *)Py_NewRef(second);
    if (!fits || !sizes_fit(self)) {
        PyErr_SetString(PyExc_ValueError, "constants, steps and helpers do not fit each other");
        Py_DECREF(self);
        return NULL;
    }
    for (int i = 0; i < NUM_HELPERS; i++) self->helpers[i] = Py_NewRef(PyTuple_GET_ITEM(helpers, i));
    self->tables = Py_NewRef(tables);
    if (!(self->owner = PyWeakref_NewRef(owner, NULL)) ||
        !(self->quick = PyObject_GetAttr(tables, names_of.quick)))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef inputs_methods[] = {
    {"prepare", WITH_NAMES(inputs_prepare), NULL},
    {"prepare_inputs", WITH_NAMES(inputs_prepare_inputs), NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject InputsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Inputs",
    .tp_doc = "Inputs(owner, tables, steps, constants, helpers): the preparation of batches by one\n"
              "launch. What it does not make, the methods of the owner's class do.",
    .tp_basicsize = sizeof(Inputs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = inputs_new,
    .tp_methods = inputs_methods,
    .tp_traverse = (traverseproc)inputs_traverse,
    .tp_clear = (inquiry)inputs_clear,
    .tp_dealloc = (destructor)inputs_dealloc,
};
