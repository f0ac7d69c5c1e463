/* Step: a whole step that carries its writes, from the check of its arguments to the launch. */

/* Launches by the driver; 0 where Python code has to handle it, -1 for an error. */
static int launch_step(Step *self, Launch *launch, int kind, void *stream, unsigned num_programs,
                       const uint64_t *leading) {
    /* Of a part of a step, only the callers' tables; of inputs alone, only the requests. */
    Py_ssize_t first = kind < NUM_KINDS || kind == INPUTS ? 0 : self->is.first - self->num_groups;
    Py_ssize_t num_words = self->is.first - first + (kind < NUM_KINDS ? self->is.payloads[kind] : 0);
    if (kind == INPUTS) num_words = self->is.begin;
    if (NUM_LEADING + num_words != launch->num_arguments) return 0;
    uint64_t values[NUM_LEADING + num_words]; /* no more: each page of the stack is touched */
    const uint64_t *words = self->words.buf;
    memcpy(values, leading, NUM_LEADING * sizeof(uint64_t));
    memcpy(values + NUM_LEADING, words + first, (size_t)num_words * sizeof(uint64_t));
    unsigned grid[3] = {num_programs, 1, 1};
    return launch_now(launch, grid, stream, values) ? -1 : 1;
}

/* Stands in for the driver in tests. */
static int launch_by_python(PyObject *launch, unsigned num_programs, const uint64_t *leading) {
    PyObject *values = PyTuple_New(NUM_LEADING), *found = NULL;
    for (Py_ssize_t i = 0; values && i < NUM_LEADING; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(leading[i]);
        if (value)
            PyTuple_SET_ITEM(values, i, value);
        else
            Py_CLEAR(values);
    }
    if (values) found = PyObject_CallFunction(launch, "IN", num_programs, values);
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

/* Packs what is staged into a buffer that the device has read: the ids, or all of it; returns where
   that is, 0 for an error. */
static uint64_t pack_in_memory(Step *self, int kind, Room *room, Packed *packed) {
    /* Ids begin at a multiple of 16 bytes. */
    long long head = kind == IN_MEMORY ? divided_up(packed->head, 2) * 2 : 0;
    long long size = head + packed->apart;
    PyObject *view = PyObject_CallMethod(self->ring, "advance", "L", 2 * size);
    Py_buffer buffer;
    if (!view || PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)) {
        Py_XDECREF(view);
        return 0;
    }
    if (kind == IN_MEMORY) {
        room->payload = buffer.buf;
        room->payload_room = head;
    }
    room->ids = (int32_t *)((uint64_t *)buffer.buf + head);
    room->ids_room = packed->apart;
    Packed before = *packed;
    int fits = buffer.len >= 8 * size && self->packing->pack(self->staged, room, packed) &&
               memcmp(packed, &before, sizeof(before)) == 0;
    uint64_t address = (uint64_t)(uintptr_t)buffer.buf; /* the same one for the device */
    PyBuffer_Release(&buffer);
    Py_DECREF(view);
    if (fits) return address;
    /* To advance runs other code, such as the garbage collector's. */
    PyErr_SetString(PyExc_RuntimeError, "what is staged has changed during the step");
    return 0;
}

/* Those that write, and those of all groups. */
static unsigned programs_of(const Step *self, const Plan *plan) {
    const uint64_t *leading = plan->leading;
    uint64_t written = (uint64_t)self->is.words_written;
    uint64_t num_writers = (leading[NUM_WORDS] + written - 1) / written + leading[NUM_PIECES];
    uint64_t in_group = leading[NUM_SPANS] + (uint64_t)plan->num_tiles +
                        leading[NUM_WIDE] * leading[NUM_CHUNKS] + leading[NUM_PADS];
    num_writers += (uint64_t)plan->num_inputs;
    return (unsigned)(num_writers + (uint64_t)self->num_groups * in_group);
}

/* As `CarryingLaunch._kind`. */
static int kind_of(const Step *self, const Packed *packed) {
    const long long *room = self->is.payloads;
    if (packed->size <= room[SINGLE_IDS] && packed->num_pieces == 0) return SINGLE_IDS;
    if (packed->size <= room[MANY_IDS] && packed->longest <= self->is.most_carried)
        return packed->size <= room[FEW_IDS] ? FEW_IDS : MANY_IDS;
    if (packed->head <= room[FEW_APART]) return FEW_APART;
    return packed->head <= room[MANY_APART] ? MANY_APART : IN_MEMORY;
}

/* The launch of a kind that suits a plan; NULL where it is not loaded. */
static PyObject *launch_for(const Step *self, int kind, const Plan *plan) {
    return self->launches[plan->shape][kind][plan->has_options][plan->is_aligned];
}

/* 1 if it is launched, 0 where Python code has to handle it, -1 for an error. */
static int launch_any(Step *self, PyObject *launch, int kind, void *stream, const Plan *plan) {
    unsigned num_programs = programs_of(self, plan);
    return Py_TYPE(launch) == &LaunchType
               ? launch_step(self, (Launch *)launch, kind, stream, num_programs, plan->leading)
               : launch_by_python(launch, num_programs, plan->leading);
}

/* As `pack_and_launch`, for a part of a step that sees only what was applied. */
static int launch_part(Step *self, int kind, Plan *plan) {
    void *stream;
    PyObject *launch = launch_for(self, kind, plan);
    if (!launch || find_stream(self, &stream)) return 0;
    Py_INCREF(launch);
    int done = launch_any(self, launch, kind, stream, plan);
    Py_DECREF(launch);
    return done;
}

/* 1 if a planned step is launched, 0 where Python code has to handle it, -1 for an error. */
static int pack_and_launch(Step *self, Plan *plan) {
    void *stream;
    Packed packed;
    if (find_stream(self, &stream)) return 0;
    uint64_t *words = self->words.buf;
    long long most = self->words.len / (long long)sizeof(uint64_t) - self->is.first;
    Room room = {words + self->is.begin, words + self->is.first, most, NULL, 0};
    if (!self->packing->pack(self->staged, &room, &packed)) return 0;
    int kind = kind_of(self, &packed);
    PyObject *launch = launch_for(self, kind, plan);
    if (!launch) return 0;
    uint64_t *leading = plan->leading;
    int in_memory = kind > MANY_IDS;
    Py_INCREF(launch); /* code that runs meanwhile may put another one in its place */
    int done = -1;
    if (!in_memory || (leading[STAGING] = pack_in_memory(self, kind, &room, &packed))) {
        leading[NUM_WORDS] = (uint64_t)packed.num_words;
        leading[NUM_PIECES] = (uint64_t)packed.num_pieces;
        done = launch_any(self, launch, kind, stream, plan);
    }
    Py_DECREF(launch);
    if (done == 1) self->packing->clear(self->staged);
    if (done == 1 && in_memory) {
        PyObject *noted = PyObject_CallMethod(self->ring, "note_reader", NULL);
        if (!noted) return -1;
        Py_DECREF(noted);
    }
    return done;
}

/* An apply, as a step without a batch. */
static int plan_apply(const Step *self, Plan *plan) {
    plan->has_options = self->is.sharded != 0;
    plan->is_aligned = self->is.aligned != 0;
    for (int i = DESCRIPTORS; i <= POSITIONS; i++) plan->leading[i] = (uint64_t)self->is.descriptors;
    plan->leading[STAGING] = (uint64_t)self->is.descriptors;
    plan->leading[INDEX_STEP] = 1;
    return 1;
}

/* Makes what is planned. 1 if it is launched, 0 with nothing done where Python code has to handle
   it, -1 for an error. */
static int launch_planned(Step *self, int part, Plan *plan) {
    int pushed = 0;
    if (self->device && enter(self->device, &pushed)) return -1;
    int done = part < WHOLE ? launch_part(self, part, plan) : pack_and_launch(self, plan);
    return leave(pushed) ? -1 : done;
}

/* Makes a step, or a part of one; the plan is to be empty. 1 if it is launched, 0 with nothing done
   where Python code has to handle it, -1 for an error. */
static int launch_given(Step *self, int part, const Given *given, Plan *plan) {
    int done = part == APPLY ? plan_apply(self, plan) : plan_step(self, given, plan);
    return done == 1 ? launch_planned(self, part, plan) : done;
}

static PyObject **launch_of(Step *self, int number) {
    return &self->launches[0][0][0][0] + number;
}

static int step_clear(Step *self) {
    Py_CLEAR(self->staged);
    Py_CLEAR(self->ring);
    Py_CLEAR(self->device);
    Py_CLEAR(self->tensor_type);
    for (int i = 0; i < NUM_SHAPES * NUM_LAUNCHES * 4; i++) Py_CLEAR(*launch_of(self, i));
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < NUM_KEPT; i++) Py_CLEAR(self->kept[kind][i].views);
    return 0;
}

static int step_traverse(Step *self, visitproc visit, void *arg) {
    Py_VISIT(self->staged);
    Py_VISIT(self->ring);
    Py_VISIT(self->tensor_type);
    for (int i = 0; i < NUM_SHAPES * NUM_LAUNCHES * 4; i++) Py_VISIT(*launch_of(self, i));
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < NUM_KEPT; i++) Py_VISIT(self->kept[kind][i].views);
    return 0;
}

static void step_dealloc(Step *self) {
    PyObject_GC_UnTrack(self);
    step_clear(self);
    if (self->words.obj) PyBuffer_Release(&self->words);
    if (self->widths.obj) PyBuffer_Release(&self->widths);
    if (self->taken.obj) PyBuffer_Release(&self->taken);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* The functions of what is staged, which live as long as its module; NULL for an error. */
static const Packing *packing_of(PyObject *staged) {
    PyObject *capsule = PyObject_GetAttrString(staged, "packing");
    const Packing *packing = capsule ? PyCapsule_GetPointer(capsule, PACKING) : NULL;
    Py_XDECREF(capsule);
    return packing;
}

/* Finds how torch shows its tensors. -1 for an error. */
static int find_exchange(Step *self, PyTypeObject *tensor_type) {
    PyObject *capsule =
        PyObject_GetAttrString((PyObject *)tensor_type, "__dlpack_c_exchange_api__");
    if (!capsule) return -1;
    /* It lives as long as the process. */
    const Exchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    if (!found) return -1;
    if (found->major != DLPACK_MAJOR || !found->look_at || !found->current_stream) {
        PyErr_Format(PyExc_BufferError, "DLPack %u.%u; expected %d with a quick look at tensors",
                     found->major, found->minor, DLPACK_MAJOR);
        return -1;
    }
    self->exchange = found;
    return 0;
}

static int are_possible(const Constants *is) {
    int possible = is->span > 0 && is->wide_columns > 0 && is->words_written > 0 && is->block > 0;
    for (int shape = 0; shape < NUM_SHAPES; shape++)
        possible = possible && is->requests[shape] > 0 && is->tokens[shape] >= 0;
    return possible;
}

/* Whether the words have room for what each kind of launch carries. */
static int payloads_fit(const Constants *is, long long num_words) {
    int fit = 1;
    for (int kind = 0; kind < NUM_KINDS; kind++)
        fit = fit && is->payloads[kind] >= 0 && num_words - is->first >= is->payloads[kind];
    return fit;
}

/* Takes the numbers that the tables and kernels have. -1 for an error. */
static int take_constants(Step *self, PyObject *constants) {
    Py_buffer view;
    if (PyObject_GetBuffer(constants, &view, PyBUF_SIMPLE)) return -1;
    int fits = view.len == (Py_ssize_t)sizeof(Constants);
    if (fits) memcpy(&self->is, view.buf, sizeof(Constants));
    PyBuffer_Release(&view);
    long long num_words = self->words.len / (long long)sizeof(uint64_t);
    self->num_groups = self->widths.len / (long long)sizeof(int64_t);
    self->num_taken = self->taken.len / (long long)(2 * sizeof(uint64_t));
    if (fits && are_possible(&self->is) && self->num_groups > 0 &&
        self->is.begin >= 0 && self->is.first >= self->num_groups + self->is.begin &&
        payloads_fit(&self->is, num_words) &&
        NUM_LEADING + num_words < MAX_PARAMETERS)
        return 0;
    PyErr_SetString(PyExc_ValueError, "constants do not fit each other, or the words");
    return -1;
}

static PyObject *step_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"tensor_type", "staged", "ring",   "words", "device_type",
                               "index",       "device", "widths", "taken", "constants", NULL};
    PyTypeObject *tensor_type;
    PyObject *staged, *ring, *words, *device, *widths, *taken, *constants;
    int device_type, device_index;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O!OOOiiOOOO", keywords, &PyType_Type,
                                     &tensor_type, &staged, &ring, &words, &device_type,
                                     &device_index, &device, &widths, &taken, &constants))
        return NULL;
    int on_cuda = device_type == DLPACK_CUDA;
    if (on_cuda ? Py_TYPE(device) != &DeviceType : device != Py_None)
        return PyErr_Format(PyExc_TypeError, "device is a %s; expected %s",
                            Py_TYPE(device)->tp_name, on_cuda ? "a Device" : "None");
    Step *self = (Step *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->tensor_type = (PyTypeObject *)Py_NewRef(tensor_type);
    self->staged = Py_NewRef(staged);
    self->ring = Py_NewRef(ring);
    self->device = on_cuda ? (Device *)Py_NewRef(device) : NULL;
    self->device_type = device_type;
    self->device_index = device_index;
    if (!(self->packing = packing_of(staged)) || find_exchange(self, tensor_type) ||
        PyObject_GetBuffer(words, &self->words, PyBUF_WRITABLE) ||
        PyObject_GetBuffer(widths, &self->widths, PyBUF_SIMPLE) ||
        PyObject_GetBuffer(taken, &self->taken, PyBUF_SIMPLE) || take_constants(self, constants)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *step_add(Step *self, PyObject *args) {
    int shape, kind, has_options, is_aligned;
    PyObject *launch;
    if (!PyArg_ParseTuple(args, "iippO", &shape, &kind, &has_options, &is_aligned, &launch))
        return NULL;
    if (shape < 0 || shape >= NUM_SHAPES || kind < 0 || kind >= NUM_LAUNCHES)
        return PyErr_Format(PyExc_ValueError, "shape is %d and kind %d; expected 0 to 1, and to 9",
                            shape, kind);
    if (Py_TYPE(launch) == &LaunchType && ((Launch *)launch)->device != self->device) {
        PyErr_SetString(PyExc_ValueError, "the launch has another Device than the step");
        return NULL;
    }
    PyObject **place = &self->launches[shape][kind][has_options][is_aligned];
    Py_XSETREF(*place, Py_NewRef(launch));
    Py_RETURN_NONE;
}

static PyMethodDef step_methods[] = {
    {"add", (PyCFunction)step_add, METH_VARARGS,
     "add(shape, kind, has_options, is_aligned, launch): what launches steps of a shape (0 few, 1\n"
     "many) and kind (0 single ids, 1 few and 2 many, 3 few and 4 many with ids in memory, 5 all\n"
     "in memory; parts of a step: 6 a gather, 7 slots, 8 both, 9 inputs)."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Step",
    .tp_doc = "A whole step that carries its writes, and its parts; `Calls` makes it.",
    .tp_basicsize = sizeof(Step),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = step_new,
    .tp_methods = step_methods,
    .tp_traverse = (traverseproc)step_traverse,
    .tp_clear = (inquiry)step_clear,
    .tp_dealloc = (destructor)step_dealloc,
};
