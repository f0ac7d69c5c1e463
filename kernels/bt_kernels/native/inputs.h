/* Inputs: the preparation of a batch, as engines call it, without a Python frame on the way to the
   launch. What is not plain is left to the methods of the class. */

#define ROW_BITS 48
#define LOGIT_BITS 27
#define NUM_ROOMS 2
#define NUM_NEW 5 /* outputs that are new in each step */
#define NUM_ARGUMENTS 7
#define NUM_FIELDS 15 /* of what is returned */
#define NUM_REST 5    /* of these, the last */

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
    BATCH,         /* class of what is returned */
    ALLOCATE,      /* function that returns a new int64 tensor of a size */
    CONSTANTS,     /* functions by a size: what a step of one logit for each request has */
    OF_TOKENS,     /* views of persistent outputs */
    OF_REQUESTS,
    INT32, INT64,  /* dtypes of numpy */
    FUNCTIONS,     /* capsule of numpy's functions */
    NUM_HELPERS,
};
static const Py_ssize_t made_by[] = {[CONSTANTS] = 3, [OF_TOKENS] = 3, [OF_REQUESTS] = 2};

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* weak, since it has these methods */
    PyObject *tables, *quick; /* the tables, and their step when this was made */
    Step *steps[NUM_ROOMS];
    PyObject *helpers[NUM_HELPERS];
    Kept kept[OF_REQUESTS + 1][NUM_KEPT]; /* by the remainder of their size */
    Slab *slab, *last_slab; /* kept longer, for readers in another stream that torch knows of */
    Numpy numpy;
    InputSizes is;
    long long num_written; /* batches whose words were written */
} Inputs;

static struct {
    PyObject *prepare, *prepare_inputs, *arguments[NUM_ARGUMENTS];
} input_names;

/* A batch on its way: what was given, and what is returned. */
typedef struct {
    PyObject *given[NUM_ARGUMENTS];
    const int64_t *rows;
    const int32_t *lengths, *drafts; /* NULL without drafts */
    PyObject *starts, *counts;       /* numpy's, on the host */
    PyObject *tensors[NUM_NEW];
    long long num_reqs, num_tokens, num_logits, longest, padded_reqs, padded_tokens;
} Prepared;

enum { ROWS, QUERY_LENS, PREFILL_LENS, IN_PREFILL, DRAFTS, PADDED_REQS, PADDED_TOKENS };
enum { MAPPING_OUT, EXPANDED_OUT, LOCAL_OUT, COUNTS_OUT, INDICES_OUT };

static void release(Prepared *batch) {
    Py_XDECREF(batch->starts);
    Py_XDECREF(batch->counts);
    for (int i = 0; i < NUM_NEW; i++) Py_XDECREF(batch->tensors[i]);
}

/* Writes the words of requests. 0 where Python code has to refuse. */
static int write_requests(Inputs *self, Step *step, Prepared *batch) {
    const InputSizes *is = &self->is;
    const int32_t *drafts = batch->drafts;
    uint64_t *words = step->words.buf;
    long long start = 0, logit = 0, longest = 0, num_reqs = batch->num_reqs;
    for (long long i = 0; i < num_reqs; i++) {
        uint64_t row = (uint64_t)batch->rows[i];
        long long length = batch->lengths[i], num_drafts = drafts ? drafts[i] : 0;
        if (row >= (uint64_t)is->max_num_reqs || length < 0 || num_drafts < 0 ||
            num_drafts > is->max_drafts || start > is->max_num_tokens)
            return 0;
        words[i] = row << ROW_BITS | (uint64_t)logit << LOGIT_BITS | (uint64_t)start;
        start += length;
        logit += is->bonus + num_drafts;
        if (length > longest) longest = length;
    }
    if (start < 1 || start > batch->padded_tokens) return 0;
    words[num_reqs] = (uint64_t)logit << LOGIT_BITS | (uint64_t)start;
    batch->num_tokens = start;
    batch->num_logits = logit;
    batch->longest = longest;
    return 1;
}

/* Makes the arrays on the host, from the words of requests. -1 for an error. */
static int make_arrays(Inputs *self, Step *step, Prepared *batch) {
    const uint64_t *words = step->words.buf, mask = (1 << LOGIT_BITS) - 1;
    const uint64_t logits = (1 << (ROW_BITS - LOGIT_BITS)) - 1;
    long long num_reqs = batch->num_reqs;
    int32_t *starts = new_vector(&self->numpy, batch->padded_reqs + 1, &batch->starts);
    int32_t *counts = starts ? new_vector(&self->numpy, num_reqs + 1, &batch->counts) : NULL;
    if (!counts) return -1;
    for (long long i = 0; i <= num_reqs; i++) {
        starts[i] = (int32_t)(words[i] & mask);
        counts[i] = (int32_t)(words[i] >> LOGIT_BITS & logits);
    }
    for (long long i = num_reqs + 1; i <= batch->padded_reqs; i++) starts[i] = (int32_t)batch->num_tokens;
    return 0;
}

/* What a helper returns for a size, which is kept; NULL with an error. */
static PyObject *kept_of(Inputs *self, int helper, PyObject *size, long long number) {
    Kept *kept = &self->kept[helper][number % NUM_KEPT];
    if (kept->views && kept->size == number) return Py_NewRef(kept->views);
    PyObject *made = PyObject_CallOneArg(self->helpers[helper], size);
    if (made && (!PyTuple_CheckExact(made) || PyTuple_GET_SIZE(made) != made_by[helper])) {
        Py_DECREF(made);
        return PyErr_Format(PyExc_TypeError, "expected a tuple of %zd tensors", made_by[helper]);
    }
    if (!made) return NULL;
    kept->size = number;
    Py_XSETREF(kept->views, Py_NewRef(made));
    return made;
}

/* Reserves bytes on a slab, which the caller uses until it leaves it. NULL without an error where
   Python code has to handle it. */
static Slab *slab_for(Inputs *self, Step *step, long long size, uint64_t *address) {
    void *stream = NULL;
    if (step->device && find_stream(step, &stream)) return NULL;
    Slab *slab = self->slab;
    if (!slab || slab->stream != stream || slab->size - slab->used < size) {
        slab = new_slab(step, self->helpers[ALLOCATE], size > SLAB_BYTES ? size : SLAB_BYTES, stream);
        if (!slab) return NULL;
        Slab *oldest = self->last_slab;
        self->last_slab = self->slab;
        self->slab = slab;
        leave_slab(oldest);
    }
    __atomic_add_fetch(&slab->num_users, 1, __ATOMIC_RELAXED);
    *address = slab->begin + (uint64_t)slab->used;
    slab->used += size;
    return slab;
}

/* Makes the outputs that are new in each step. Those that are the same in each step of one logit, or
   one token, for each request are constants. 0 where Python code has to handle it. */
static int new_outputs(Inputs *self, Step *step, Prepared *batch, uint64_t *addresses) {
    const InputSizes *is = &self->is;
    long long num_reqs = batch->num_reqs, num_logits = batch->num_logits, total = 0;
    int counts_vary = is->bonus != 1 || batch->drafts;
    int indices_vary = counts_vary || batch->longest > 1 || batch->num_tokens != num_reqs;
    const struct {
        int is_new, bits;
        long long size;
    } wanted[NUM_NEW] = {
        [MAPPING_OUT] = {1, 64, num_reqs},          [EXPANDED_OUT] = {counts_vary, 64, num_logits},
        [LOCAL_OUT] = {counts_vary, 32, num_logits}, [COUNTS_OUT] = {counts_vary, 32, num_reqs + 1},
        [INDICES_OUT] = {indices_vary, 64, num_logits},
    };
    for (int i = 0; i < NUM_NEW; i++)
        if (wanted[i].is_new) total += divided_up(wanted[i].size * wanted[i].bits / 8, PIECE_BYTES);
    uint64_t address;
    Slab *slab = slab_for(self, step, total * PIECE_BYTES, &address);
    if (!slab) return PyErr_Occurred() ? -1 : 0;
    int done = 1;
    for (int i = 0; done == 1 && i < NUM_NEW; i++) {
        addresses[i] = wanted[i].is_new ? address : 0;
        if (!wanted[i].is_new) continue;
        batch->tensors[i] = tensor_on(slab, step, address, wanted[i].size, wanted[i].bits);
        if (!batch->tensors[i]) done = -1;
        address += (uint64_t)divided_up(wanted[i].size * wanted[i].bits / 8, PIECE_BYTES) * PIECE_BYTES;
    }
    leave_slab(slab);
    if (done < 0 || counts_vary) return done;
    PyObject *number = PyLong_FromLongLong(num_reqs);
    PyObject *same = number ? kept_of(self, CONSTANTS, number, num_reqs) : NULL;
    Py_XDECREF(number);
    if (!same) return -1;
    batch->tensors[EXPANDED_OUT] = Py_NewRef(batch->tensors[MAPPING_OUT]);
    const int places[] = {COUNTS_OUT, LOCAL_OUT, INDICES_OUT};
    for (int i = 0; i < 3; i++)
        if (!batch->tensors[places[i]]) batch->tensors[places[i]] = Py_NewRef(PyTuple_GET_ITEM(same, i));
    Py_DECREF(same);
    return 1;
}

/* Takes the arguments of a call to their places. 0 where Python code has to look at them. */
static int take_arguments_of(PyObject *const *args, Py_ssize_t num, PyObject *names,
                             Prepared *batch) {
    Argument wanted[NUM_ARGUMENTS];
    for (int i = 0; i < NUM_ARGUMENTS; i++) {
        wanted[i].name = input_names.arguments[i];
        wanted[i].place = &batch->given[i];
    }
    return take_arguments(wanted, NUM_ARGUMENTS, NUM_ARGUMENTS, NUM_ARGUMENTS, args, num, names);
}

/* Looks at what was given. 0 where Python code has to look at it. */
static int take_arrays(const Inputs *self, Prepared *batch) {
    PyObject *const *given = batch->given;
    const Numpy *numpy = &self->numpy;
    long long num_lengths;
    if (!take_size(given[PADDED_REQS], &batch->padded_reqs) ||
        !take_size(given[PADDED_TOKENS], &batch->padded_tokens) ||
        !(batch->rows = elements_of(given[ROWS], numpy, numpy->int64, &batch->num_reqs)) ||
        !(batch->lengths = elements_of(given[QUERY_LENS], numpy, numpy->int32, &num_lengths)))
        return 0;
    long long num_drafts = batch->num_reqs;
    if (given[DRAFTS] != Py_None &&
        !(batch->drafts = elements_of(given[DRAFTS], numpy, numpy->int32, &num_drafts)))
        return 0;
    const InputSizes *is = &self->is;
    return num_lengths == batch->num_reqs && num_drafts == batch->num_reqs &&
           batch->num_reqs > 0 && batch->num_reqs <= batch->padded_reqs && batch->padded_reqs <= is->max_num_reqs &&
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

/* One of the last fields of what is returned; NULL with an error. */
static PyObject *make_rest(Inputs *self, Step *step, int part, const Prepared *batch, int number) {
    int is_whole = part != INPUTS;
    switch (number) {
    case 0: return Py_NewRef(batch->starts);
    case 1: return Py_NewRef(batch->counts);
    case 2:
        return PyLong_FromLongLong(
            batch->drafts ? batch->num_logits - self->is.bonus * batch->num_reqs : 0);
    case 3:
        return is_whole ? views_of(self->tables, step, TABLE_VIEWS, batch->given[PADDED_REQS])
                        : PyTuple_New(0);
    default:
        return is_whole ? views_of(self->tables, step, SLOT_VIEWS, batch->given[PADDED_TOKENS])
                        : Py_NewRef(Py_None);
    }
}

/* What a call returns. */
static PyObject *batch_of(Inputs *self, Step *step, int part, Prepared *batch) {
    PyObject *of_tokens =
        kept_of(self, OF_TOKENS, batch->given[PADDED_TOKENS], batch->padded_tokens);
    PyObject *of_requests =
        of_tokens ? kept_of(self, OF_REQUESTS, batch->given[PADDED_REQS], batch->padded_reqs) : NULL;
    PyTypeObject *type = (PyTypeObject *)self->helpers[BATCH];
    /* As `tuple.__new__`, which is all that a named tuple's does. */
    PyObject *result = of_tokens && of_requests ? type->tp_alloc(type, NUM_FIELDS) : NULL;
    Py_ssize_t place = 0;
    for (int i = 0; result && i < NUM_NEW; i++)
        PyTuple_SET_ITEM(result, place++, Py_NewRef(batch->tensors[i]));
    for (int i = 0; result && i < made_by[OF_TOKENS]; i++)
        PyTuple_SET_ITEM(result, place++, Py_NewRef(PyTuple_GET_ITEM(of_tokens, i)));
    for (int i = 0; result && i < made_by[OF_REQUESTS]; i++)
        PyTuple_SET_ITEM(result, place++, Py_NewRef(PyTuple_GET_ITEM(of_requests, i)));
    /* One after the other: no code may run once there is an error. */
    for (int i = 0; result && i < NUM_REST; i++) {
        PyObject *made = make_rest(self, step, part, batch, i);
        PyTuple_SET_ITEM(result, place++, made);
        if (!made) Py_CLEAR(result);
    }
    Py_XDECREF(of_tokens);
    Py_XDECREF(of_requests);
    return result;
}

/* Whether the owner's batches may be prepared in C now; 0 for an error, too, see `forget_error`. */
static int may_prepare(Inputs *self, PyObject *owner) {
    PyObject *validates = PyObject_GetAttr(owner, names_of.validate);
    Py_XDECREF(validates);
    Step *step = validates == Py_False ? step_of(self->tables, WHOLE) : NULL;
    int is_same = (PyObject *)step == self->quick; /* else the tables were replaced */
    Py_XDECREF(step);
    return !forget_error() && step && is_same;
}

/* Prepares a batch; NULL without an error where Python code has to handle it. */
static PyObject *prepare_in_c(Inputs *self, PyObject *owner, int part, PyObject *const *args,
                              Py_ssize_t num, PyObject *names) {
    Prepared batch = {0};
    Plan plan = {0};
    PyObject *dirty = NULL, *result = NULL;
    if (!may_prepare(self, owner) || !take_arguments_of(args, num, names, &batch)) goto end;
    if (part != INPUTS && !(dirty = PyObject_GetAttr(self->tables, names_of.dirty))) goto end;
    int has_prefill = PyObject_IsTrue(batch.given[IN_PREFILL]);
    /* Behind these, which may run Python code, nothing does until the arrays are read. */
    if (has_prefill < 0 || !take_arrays(self, &batch)) goto end;
    int room = batch.num_reqs > self->is.rooms[0];
    Step *step = self->steps[room];
    uint64_t *fields = (uint64_t *)step->words.buf + self->is.rooms[room] + 1;
    uint64_t addresses[NUM_NEW];
    int done = write_requests(self, step, &batch);
    long long mine = ++self->num_written;
    if (done == 1 && make_arrays(self, step, &batch)) done = -1;
    if (done == 1) done = new_outputs(self, step, &batch, addresses);
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
    if (!result && !PyErr_Occurred()) {
        self->num_written++; /* into the same words */
        result = by_python(owner, name, args, num, names);
    }
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
    for (int helper = CONSTANTS; helper <= OF_REQUESTS; helper++)
        for (int i = 0; i < NUM_KEPT; i++) Py_CLEAR(self->kept[helper][i].views);
    Slab *slabs[] = {self->slab, self->last_slab};
    self->slab = self->last_slab = NULL;
    for (int i = 0; i < 2; i++) leave_slab(slabs[i]);
    return 0;
}

static int inputs_traverse(Inputs *self, visitproc visit, void *arg) {
    Py_VISIT(self->tables);
    Py_VISIT(self->quick);
    for (int i = 0; i < NUM_ROOMS; i++) Py_VISIT(self->steps[i]);
    for (int i = 0; i < NUM_HELPERS; i++) Py_VISIT(self->helpers[i]);
    for (int helper = CONSTANTS; helper <= OF_REQUESTS; helper++)
        for (int i = 0; i < NUM_KEPT; i++) Py_VISIT(self->kept[helper][i].views);
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
    if (!fits || !self->steps[0]->exchange->to_tensor || !sizes_fit(self)) {
        PyErr_SetString(PyExc_ValueError, "constants, steps and helpers do not fit each other");
        Py_DECREF(self);
        return NULL;
    }
    for (int i = 0; i < NUM_HELPERS; i++) self->helpers[i] = Py_NewRef(PyTuple_GET_ITEM(helpers, i));
    self->numpy = (Numpy){PyCapsule_GetPointer(self->helpers[FUNCTIONS], NULL), self->helpers[INT32],
                          self->helpers[INT64]};
    self->tables = Py_NewRef(tables);
    if (!self->numpy.functions || !(self->owner = PyWeakref_NewRef(owner, NULL)) ||
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
