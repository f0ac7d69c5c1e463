/* What a step is to launch, by a look at its arguments. */

#include "packing.h"

/* Of DLPack 1, by which torch shows tensors to C; see its dlpack.h. */
typedef struct {
    void *data;
    int32_t device_type, device_index, num_dimensions;
    uint8_t kind, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    uint32_t major, minor;
    void *before;
    void *allocate, *to_managed;
    int (*to_tensor)(void *, void **);
    int (*look_at)(void *, Tensor *);
    int (*current_stream)(int, int32_t, void **);
} Exchange;

#define DLPACK_MAJOR 1
#define DLPACK_CUDA 2
#define DLPACK_INT 0
#define DLPACK_UINT 1
#define NUM_SHAPES 2
#define NUM_KINDS 6
#define NUM_LAUNCHES 10 /* of these kinds, and of parts of a step */
#define NUM_KEPT 512 /* sizes whose views are kept */
#define MAX_NUM_BATCHED_TOKENS 1073741824 /* as in layout.py: of a caller's slots, too */

enum { FEW, MANY };
/* As in one_launch/carrying.py. */
enum { SINGLE_IDS, FEW_IDS, MANY_IDS, FEW_APART, MANY_APART, IN_MEMORY };
enum { GATHER = NUM_KINDS, SLOTS, GATHER_SLOTS, INPUTS, WHOLE, APPLY };

/* Constants of the tables, in the order in which `one_launch/native_step.py` gives them. */
typedef struct {
    long long descriptors, first;
    long long payloads[NUM_KINDS]; /* words after the first, by kind */
    long long max_num_reqs, max_num_tokens, widest, has_window, sharded, aligned;
    long long requests[NUM_SHAPES], tokens[NUM_SHAPES]; /* of a program */
    long long many_rows, span, max_spans, own_columns, wide_columns, max_chunks, max_wide_programs,
        words_written, block, max_pads, most_carried;
    long long begin; /* words before the bitmap, which have the requests of a batch */
} Constants;

/* Views of so many rows of the input tables, or of so many slots. */
typedef struct {
    long long size;
    PyObject *views;
} Kept;

enum { TABLE_VIEWS, SLOT_VIEWS };

typedef struct {
    PyObject_HEAD
    const Exchange *exchange;
    PyTypeObject *tensor_type;
    PyObject *staged;
    const Packing *packing; /* its functions */
    PyObject *ring;              /* of buffers, for what does not fit */
    Device *device;              /* NULL in tests with tensors on the CPU */
    /* By shape, kind, whether there are options, and whether rows are aligned. */
    PyObject *launches[NUM_SHAPES][NUM_LAUNCHES][2][2];
    Kept kept[2][NUM_KEPT]; /* by the remainder of their size */
    Py_buffer words, widths, taken;
    Constants is;
    long long num_groups, num_taken;
    int device_type, device_index;
} Step;

/* A tensor of so many dimensions on the device, with elements of a row side by side. */
static int look_at(Step *self, PyObject *object, int dimensions, int bits, Tensor *tensor) {
    if (Py_TYPE(object) != self->tensor_type) return 0;
    if (self->exchange->look_at(object, tensor)) {
        PyErr_Clear(); /* Python code will say what is wrong, if anything is */
        return 0;
    }
    int last = dimensions - 1;
    return tensor->num_dimensions == dimensions && tensor->lanes == 1 &&
           (tensor->kind == DLPACK_INT || (tensor->kind == DLPACK_UINT && bits == 0)) &&
           (bits == 0 ? tensor->bits == 32 || tensor->bits == 64 : tensor->bits == bits) &&
           tensor->device_type == self->device_type &&
           tensor->device_index == self->device_index &&
           (tensor->shape[last] < 2 || tensor->strides[last] == 1);
}

static uint64_t address_in(const Tensor *tensor) {
    return (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
}

static long long at_most(long long limit, long long value) { return value < limit ? value : limit; }

static long long divided_up(long long value, long long by) { return (value + by - 1) / by; }

/* Arguments of the kernel before the words. */
enum {
    DESCRIPTORS, MAPPING, STARTS, POSITIONS, COMPUTED, SLOTS_OUT, SLOTS_STRIDE, NUM_SLOTS,
    INDEX_STEP, NUM_REQS, NUM_ROWS, NUM_WORDS, NUM_PIECES, NUM_SPANS, NUM_WIDE, NUM_CHUNKS,
    NUM_PADS, STAGING, NUM_LEADING,
};

/* The arguments of a step. Of a part of a step those that it has not are NULL: a gather has no
   `starts`, slots have no `num_reqs_padded`, and an apply has none. */
typedef struct {
    PyObject *mapping, *starts, *positions, *num_reqs_padded, *num_tokens_padded, *num_dirty_rows,
        *computed, *out, *pointers, *slots_out;
} Given;

/* A step whose arguments have been looked at. */
typedef struct {
    uint64_t leading[NUM_LEADING];
    int has_options, is_aligned, shape;
    long long num_tiles, num_inputs; /* programs */
} Plan;

/* As `Shape.spans`. */
static long long spans_of(const Step *self, int shape, long long num_tokens) {
    if (num_tokens <= self->is.tokens[shape]) return 0;
    return at_most(self->is.max_spans, divided_up(num_tokens, self->is.span));
}

/* As `OneLaunch.cut_of`; without tokens, none are mapped. */
static void cut(const Step *self, long long num_tokens, long long longest, int gathers,
                Plan *plan) {
    const Constants *is = &self->is;
    uint64_t *leading = plan->leading;
    long long num_reqs = (long long)leading[NUM_REQS], num_rows = (long long)leading[NUM_ROWS];
    long long num_padded = num_rows - num_reqs;
    plan->shape = num_rows * self->num_groups > is->many_rows ? MANY : FEW;
    plan->num_tiles = divided_up(num_rows, is->requests[plan->shape]);
    leading[NUM_SPANS] = (uint64_t)spans_of(self, plan->shape, num_tokens);
    if (!gathers) return;
    long long num_wide = longest > is->own_columns ? num_rows : num_padded;
    if (num_padded > 0 && longest < is->widest) longest = is->widest;
    if (!num_wide || longest <= is->own_columns) return;
    long long most = is->max_wide_programs / (num_wide * self->num_groups);
    long long num_chunks = divided_up(longest - is->own_columns, is->wide_columns);
    num_chunks = at_most(is->max_chunks, at_most(most < 1 ? 1 : most, num_chunks));
    leading[NUM_WIDE] = (uint64_t)num_wide;
    leading[NUM_CHUNKS] = (uint64_t)num_chunks;
}

/* As `pads_for`. */
static long long pads_of(const Step *self, long long num_slots) {
    long long found = at_most(self->is.max_pads, divided_up(num_slots, self->is.block));
    return found < 1 ? 1 : found;
}

/* Tables of the caller, whose addresses go to the words before the payload. 0 where Python code has
   to look at them. */
static int take_tables(Step *self, PyObject *out, PyObject *pointers, long long num_padded,
                       Plan *plan) {
    int64_t *targets = (int64_t *)self->words.buf + self->is.first - self->num_groups;
    if (out == Py_None) {
        memset(targets, 0, (size_t)self->num_groups * sizeof(int64_t));
        return pointers == Py_None;
    }
    if (!(PyList_CheckExact(out) || PyTuple_CheckExact(out)) ||
        PySequence_Fast_GET_SIZE(out) != self->num_groups)
        return 0;
    Tensor found;
    if (pointers != Py_None &&
        !(look_at(self, pointers, 1, 0, &found) && found.bits == 64 &&
          found.shape[0] == self->num_groups))
        return 0;
    const int64_t *widths = self->widths.buf;
    const uint64_t *taken = self->taken.buf;
    uint64_t ends[self->num_groups];
    for (Py_ssize_t group = 0; group < self->num_groups; group++) {
        if (!look_at(self, PySequence_Fast_GET_ITEM(out, group), 2, 32, &found) ||
            found.kind != DLPACK_INT || found.shape[1] != widths[group] ||
            found.shape[0] < num_padded || !found.shape[0] || !found.shape[1] ||
            (found.shape[0] > 1 && found.strides[0] != widths[group]))
            return 0;
        uint64_t begin = address_in(&found);
        uint64_t end = begin + (uint64_t)(found.shape[0] * found.shape[1]) * sizeof(int32_t);
        for (long long i = 0; i < self->num_taken; i++)
            if (begin < taken[2 * i + 1] && taken[2 * i] < end) return 0;
        for (Py_ssize_t i = 0; i < group; i++)
            if (begin < ends[i] && (uint64_t)targets[i] < end) return 0;
        targets[group] = (int64_t)begin;
        ends[group] = end;
        if (begin % ALIGNMENT) plan->is_aligned = 0;
    }
    plan->has_options = 1;
    return 1;
}

/* Computed tokens and slots of the caller, if there are any. */
static int take_options(Step *self, PyObject *computed, PyObject *slots, long long num_tokens,
                        Plan *plan) {
    uint64_t *leading = plan->leading;
    Tensor found;
    if (computed != Py_None) {
        if (!look_at(self, computed, 1, 32, &found) || found.shape[0] < self->is.max_num_reqs)
            return 0;
        if (self->is.has_window) {
            leading[COMPUTED] = address_in(&found);
            plan->has_options = 1;
        }
    }
    long long num_slots = self->is.max_num_tokens;
    if (slots != Py_None) {
        if (!look_at(self, slots, 2, 64, &found) || found.shape[0] != self->num_groups ||
            found.shape[1] > MAX_NUM_BATCHED_TOKENS ||
            (found.shape[0] > 1 && found.strides[0] < found.shape[1]))
            return 0;
        num_slots = found.shape[1];
        leading[SLOTS_OUT] = address_in(&found);
        leading[SLOTS_STRIDE] = (uint64_t)found.strides[0];
        plan->has_options = 1;
    }
    leading[NUM_SLOTS] = (uint64_t)num_slots;
    leading[NUM_PADS] = (uint64_t)pads_of(self, num_slots);
    return num_tokens <= num_slots;
}

/* A size of 0 or more. */
static int take_size(PyObject *object, long long *size) {
    int overflow = 0;
    if (!PyLong_CheckExact(object)) return 0;
    *size = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *size >= 0;
}

/* The rows to gather, by their number in the batch. */
static int take_rows(Step *self, const Given *given, long long num_reqs, Plan *plan) {
    long long num_padded, num_dirty, most = self->is.max_num_reqs;
    if (!take_size(given->num_reqs_padded, &num_padded) ||
        !take_size(given->num_dirty_rows, &num_dirty) || num_reqs > num_padded ||
        num_padded > most || num_dirty > most ||
        !take_tables(self, given->out, given->pointers, num_padded, plan))
        return 0;
    /* Rows of the caller's tables after the padded batch are the caller's. */
    int is_own = given->out == Py_None;
    plan->leading[NUM_ROWS] = (uint64_t)(is_own && num_dirty > num_padded ? num_dirty : num_padded);
    return 1;
}

/* Looks at the arguments of a step, or of a part of one. 1 if it can be launched, 0 where Python
   code has to handle it. */
static int plan_step(Step *self, const Given *given, Plan *plan) {
    uint64_t *leading = plan->leading;
    int gathers = given->num_reqs_padded != NULL, maps = given->starts != NULL;
    Tensor mapping, starts, positions;
    long long num_tokens_padded = 0, num_tokens = 0;
    if (!look_at(self, given->mapping, 1, 0, &mapping) || mapping.kind != DLPACK_INT) return 0;
    long long num_reqs = mapping.shape[0];
    if (num_reqs > self->is.max_num_reqs) return 0;
    plan->has_options = self->is.sharded != 0;
    plan->is_aligned = self->is.aligned != 0;
    for (int i = DESCRIPTORS; i <= POSITIONS; i++) leading[i] = (uint64_t)self->is.descriptors;
    leading[STAGING] = (uint64_t)self->is.descriptors;
    leading[MAPPING] = address_in(&mapping);
    leading[INDEX_STEP] = mapping.bits / 32;
    leading[NUM_REQS] = leading[NUM_ROWS] = (uint64_t)num_reqs;
    if (maps) {
        if (!look_at(self, given->starts, 1, 32, &starts) || starts.shape[0] <= num_reqs ||
            !look_at(self, given->positions, 1, 64, &positions) ||
            !take_size(given->num_tokens_padded, &num_tokens_padded))
            return 0;
        leading[STARTS] = address_in(&starts);
        leading[POSITIONS] = address_in(&positions);
        num_tokens = positions.shape[0];
    }
    if ((gathers && !take_rows(self, given, num_reqs, plan)) ||
        !take_options(self, given->computed, given->slots_out, num_tokens_padded, plan))
        return 0;
    if (!maps) leading[NUM_PADS] = 0;
    cut(self, num_tokens, gathers ? self->packing->longest(self->staged) : 0, gathers, plan);
    return 1;
}
