/* Launch: a kernel on a device, and how many parameters it has. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *owner; /* keeps the kernel loaded */
    PyObject *data_ptr;
    Device *device;
    void *function;
    unsigned threads, shared;
    Py_ssize_t num_arguments, num_parameters;
    Py_ssize_t side_by_side; /* arguments at the end, of 8 bytes each, with nothing between */
    /* Where parameters are in a buffer of all of them: those before, the first of these, the end. */
    uint16_t places[MAX_LEADING], sizes[MAX_LEADING];
    size_t first_place, size_of_all;
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

/* With a place for each value. */
static Result launch_by_places(Launch *self, const unsigned *grid, void *stream,
                               const uint64_t *values) {
    void *parameters[MAX_PARAMETERS];
    uint64_t zero = 0;
    for (Py_ssize_t i = 0; i < self->num_parameters; i++)
        parameters[i] = i < self->num_arguments ? (void *)&values[i] : &zero;
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.launch(self->function, grid[0], grid[1], grid[2], self->threads, 1, 1,
                           self->shared, stream, parameters, NULL);
    Py_END_ALLOW_THREADS
    return result;
}

/* With all values in one buffer, which the driver takes in less time than the places of hundreds. */
static Result launch_packed(Launch *self, const unsigned *grid, void *stream,
                            const uint64_t *values) {
    uint64_t buffer[self->size_of_all / sizeof(uint64_t) + 1];
    void *packed[] = {(void *)BUFFER_POINTER, buffer, (void *)BUFFER_SIZE, &self->size_of_all, NULL};
    Py_ssize_t num_leading = self->num_arguments - self->side_by_side;
    for (Py_ssize_t i = 0; i < num_leading; i++)
        memcpy((char *)buffer + self->places[i], &values[i], self->sizes[i]);
    size_t size = (size_t)self->side_by_side * sizeof(uint64_t);
    memcpy((char *)buffer + self->first_place, values + num_leading, size);
    size += self->first_place;
    memset((char *)buffer + size, 0, self->size_of_all - size); /* scratch memory: none */
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = driver.launch(self->function, grid[0], grid[1], grid[2], self->threads, 1, 1,
                           self->shared, stream, NULL, packed);
    Py_END_ALLOW_THREADS
    return result;
}

/* Launches on the device, which has been entered, with a value for each argument. Returns -1 for an
   error. */
static int launch_now(Launch *self, const unsigned *grid, void *stream, const uint64_t *values) {
    /* Nothing to launch, as for Triton's own launcher; the driver refuses an empty grid. */
    if (!grid[0] || !grid[1] || !grid[2]) return 0;
    int is_packed = self->num_arguments - self->side_by_side <= MAX_LEADING;
    Result result = (is_packed ? launch_packed : launch_by_places)(self, grid, stream, values);
    if (result) fail("cuLaunchKernel", result);
    else self->device->launches++;
    return result ? -1 : 0;
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
        if (num + more <= self->num_arguments)
            memcpy(&values[num], words.buf, (size_t)more * sizeof(uint64_t));
        num += more;
        PyBuffer_Release(&words);
    }
    if (num != self->num_arguments)
        return PyErr_Format(PyExc_TypeError, "%zd arguments; expected %zd that are not None", num,
                            self->num_arguments);
    int pushed;
    if (enter(self->device, &pushed)) return NULL;
    launch_now(self, grid, stream, values);
    if (leave(pushed)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *launch_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"owner",   "function",      "device", "threads",
                               "shared",  "num_arguments", NULL};
    PyObject *owner, *function, *device;
    unsigned threads, shared;
    Py_ssize_t num_arguments;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO!O!IIn", keywords, &owner, &PyLong_Type,
                                     &function, &DeviceType, &device, &threads, &shared,
                                     &num_arguments))
        return NULL;
    void *address = address_of(function);
    if (PyErr_Occurred()) return NULL;
    /* How many parameters there are, and how long, is asked of the binary: beside its arguments
       Triton gives a kernel up to two addresses of scratch memory, null where it uses none. */
    Py_ssize_t count = 0, side_by_side = 0;
    size_t offset, size, before = 0, first_place = 0, size_of_all = 0;
    uint16_t places[MAX_LEADING], sizes[MAX_LEADING];
    /* Not one more is asked for: that would be an error, which compute-sanitizer counts. */
    Py_ssize_t most = num_arguments + NUM_SCRATCH < MAX_PARAMETERS ? num_arguments + NUM_SCRATCH
                                                                   : MAX_PARAMETERS;
    int pushed;
    if (enter((Device *)device, &pushed)) return NULL;
    while (count < most && !driver.parameter(address, (size_t)count, &offset, &size)) {
        if (count < num_arguments) {
            side_by_side = size != 8 ? 0 : offset == before + 8 ? side_by_side + 1 : 1;
            if (side_by_side < 2) first_place = size == 8 ? offset : offset + size;
            before = offset;
        }
        if (count < MAX_LEADING) {
            places[count] = (uint16_t)offset;
            sizes[count] = (uint16_t)size;
        }
        size_of_all = offset + size;
        if (size != 4 && size != 8) {
            PyErr_Format(PyExc_ValueError, "parameter %zd has %zu bytes; expected 4 or 8", count,
                         size);
            break;
        }
        count++;
    }
    if (leave(pushed)) return NULL;
    if (num_arguments < 0 || count < num_arguments)
        return PyErr_Format(PyExc_ValueError,
                            "the kernel has %zd parameters; expected %zd, and up to 2 of Triton's",
                            count, num_arguments);
    Launch *self = (Launch *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->call = launch_call;
    self->data_ptr = PyUnicode_InternFromString("data_ptr");
    self->owner = Py_NewRef(owner);
    self->device = (Device *)Py_NewRef(device);
    self->function = address;
    self->threads = threads;
    self->shared = shared;
    self->num_arguments = num_arguments;
    self->num_parameters = count;
    self->side_by_side = side_by_side;
    self->first_place = first_place;
    self->size_of_all = size_of_all;
    memcpy(self->places, places, sizeof(places));
    memcpy(self->sizes, sizes, sizeof(sizes));
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
    Py_CLEAR(self->device);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef launch_members[] = {
    {"side_by_side", T_PYSSIZET, offsetof(Launch, side_by_side), READONLY,
     "arguments at the end, of 8 bytes each, that lie side by side"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject LaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launcher.Launch",
    .tp_doc = "Launch(owner, function, device, threads, shared, num_arguments)\n\n"
              "A kernel on a `Device` that is called with stream, grid, and a tuple of arguments: integers,\n"
              "tensors, and None for what the binary has no parameter for. A buffer of int64 may\n"
              "follow, whose elements are the last arguments.",
    .tp_basicsize = sizeof(Launch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = launch_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launch, call),
    .tp_members = launch_members,
    .tp_traverse = (traverseproc)launch_traverse,
    .tp_clear = (inquiry)launch_clear,
    .tp_dealloc = (destructor)launch_dealloc,
};
