/* New tensors, as pieces of slabs that torch allocates. No piece is given twice, so a reader may keep
   a tensor for as long as it likes: the memory of a slab goes back to torch after its last tensor. */

#define SLAB_BYTES (4 << 20) /* some hundred steps: another one takes as long as a tensor of torch */
#define PIECE_BYTES 16       /* pieces begin at multiples */

typedef struct {
    PyObject *memory; /* a tensor */
    uint64_t begin;
    long long size, used; /* in bytes */
    void *stream;         /* torch gives the memory to later work on it */
    uint32_t num_users;
} Slab;

/* A tensor on its way to torch; of DLPack 1, see its dlpack.h. */
typedef struct Managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct Managed *);
    uint64_t flags;
    Tensor tensor;
    int64_t shape[1], strides[1];
} Managed;

static void leave_slab(Slab *slab) {
    if (!slab || __atomic_sub_fetch(&slab->num_users, 1, __ATOMIC_ACQ_REL)) return;
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure(); /* torch may free a tensor in any thread */
    Py_DECREF(slab->memory);
    free(slab);
    PyGILState_Release(state);
}

static void free_managed(Managed *managed) {
    leave_slab(managed->context);
    free(managed);
}

/* A new slab of int64 of a function; NULL without an error where it is not plain. */
static Slab *new_slab(Step *step, PyObject *allocate, long long size, void *stream) {
    Tensor found;
    PyObject *number = PyLong_FromLongLong(size / 8);
    PyObject *memory = number ? PyObject_CallOneArg(allocate, number) : NULL;
    Py_XDECREF(number);
    Slab *slab = memory ? malloc(sizeof(Slab)) : NULL;
    if (!slab || !look_at(step, memory, 1, 64, &found) || found.shape[0] != size / 8 ||
        address_in(&found) % PIECE_BYTES) {
        free(slab);
        Py_XDECREF(memory);
        return NULL;
    }
    *slab = (Slab){memory, address_in(&found), size, 0, stream, 1};
    return slab;
}

/* A tensor of a size on a slab, from an address on. NULL with an error. */
static PyObject *tensor_on(Slab *slab, const Step *step, uint64_t address, long long size, int bits) {
    Managed *managed = malloc(sizeof(Managed));
    void *tensor = NULL;
    if (!managed) return PyErr_NoMemory();
    *managed = (Managed){step->exchange->major, step->exchange->minor, slab, free_managed, 0,
                         {(void *)(uintptr_t)address, step->device_type, step->device_index, 1,
                          DLPACK_INT, (uint8_t)bits, 1, managed->shape, managed->strides, 0},
                         {size}, {1}};
    __atomic_add_fetch(&slab->num_users, 1, __ATOMIC_RELAXED);
    /* After a failure it is not known who has it, so it stays. */
    return step->exchange->to_tensor(managed, &tensor) ? NULL : tensor;
}
