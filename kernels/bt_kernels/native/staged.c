/* The staged writes of a step, in C: the same as `StagedWrites` of staging/writes.py.
 *
 * Python code runs only while arguments are read (`__index__`, `__bool__`, iteration), into memory
 * that the call owns. So a call that is made meanwhile, or a list that changes, does no harm; and
 * what follows, the change itself, is never interrupted.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "packing.h"

/* Formats of the records that kernels read; see bt_kernels.device_code. */
#define RECORD_FIELDS 5
#define STEP_RECORD_FIELDS 8
#define MARK_FIELDS 4
#define BITMAP_ROWS 48
#define SEVERAL ((uint64_t)1 << 63)
#define MOST_WORDS 65535 /* that a bitmap can count, and ids that a word can tell the place of */

#define NULL_BLOCK_ID 0
#define NONE (-1)

/* What one request writes to one group. */
typedef struct {
    int32_t row;
    int32_t length;    /* block ids */
    int32_t overwrite; /* 0 or 1 */
    int32_t before;    /* number of blocks of the row */
} Write;

/* Arguments of a call: for each request a write per group, and all ids one after the other. */
typedef struct {
    Write *writes;
    Py_ssize_t num_writes, room_for_writes;
    int32_t *ids;
    Py_ssize_t num_ids, room_for_ids;
} Arguments;

/* Consecutive ids of an interval. An interval that is extended later has more than one. */
typedef struct {
    Py_ssize_t first; /* in `ids` */
    int32_t length;
    int32_t next; /* piece or NONE */
} Piece;

/* Interval `[start, start + length)` of a row; in the order of their first write in their group. */
typedef struct {
    int32_t row, start, length;
    int32_t head, tail; /* pieces or NONE */
    int32_t next;       /* record of the same group or NONE */
} Record;

typedef struct {
    int32_t width;
    int32_t head, tail; /* records or NONE */
    int32_t num_records;
} Group;

/* Where the record of a row is, if it was made in this generation. */
typedef struct {
    uint32_t generation;
    int32_t record;
} Mark;

typedef struct {
    PyObject_HEAD
    Py_buffer num_blocks; /* [num_groups, max_num_reqs] */
    int32_t *counts;      /* its elements */
    Py_ssize_t num_groups, max_num_reqs;
    Group *groups;
    Mark *marks; /* [num_groups, max_num_reqs] */
    uint32_t generation;
    Record *records;
    Py_ssize_t num_records, room_for_records;
    Piece *pieces;
    Py_ssize_t num_pieces, room_for_pieces;
    int32_t *ids; /* with those of intervals that were overwritten since */
    Py_ssize_t size_of_ids, room_for_ids;
    Py_ssize_t num_ids; /* without them */
    long long longest;
    int has_shrunk;  /* a row that had as many blocks: `longest` is a bound */
    Arguments spare; /* memory for the next call */
    PyObject *refuse; /* what says why a request is refused; NULL: nothing does */
    char redirects;   /* ids are staged as the null block */
} StagedWrites;

/* Memory */

/* `items` with room for `more` after `size`, or NULL; the room at least doubles. */
static void *with_room(void *items, Py_ssize_t *room, Py_ssize_t size, Py_ssize_t more, size_t item)
{
    if (items != NULL && more <= *room - size)
        return items;
    Py_ssize_t limit = (Py_ssize_t)((size_t)PY_SSIZE_T_MAX / item);
    if (more > limit - size)
        return PyErr_NoMemory();
    Py_ssize_t wanted = size + more;
    if (wanted < 16)
        wanted = 16;
    if (wanted < 2 * *room && *room <= limit / 2)
        wanted = 2 * *room;
    void *larger = PyMem_Realloc(items, (size_t)wanted * item);
    if (larger == NULL)
        return PyErr_NoMemory();
    *room = wanted;
    return larger;
}

static int reserve_ids(int32_t **ids, Py_ssize_t *room, Py_ssize_t size, Py_ssize_t more)
{
    int32_t *larger = with_room(*ids, room, size, more, sizeof(int32_t));
    if (larger == NULL)
        return -1;
    *ids = larger;
    return 0;
}

static int reserve_writes(Arguments *of, Py_ssize_t more)
{
    Write *larger =
        with_room(of->writes, &of->room_for_writes, of->num_writes, more, sizeof(Write));
    if (larger == NULL)
        return -1;
    of->writes = larger;
    return 0;
}

static int reserve_records(StagedWrites *self, Py_ssize_t more)
{
    Record *larger = with_room(
        self->records, &self->room_for_records, self->num_records, more, sizeof(Record));
    if (larger == NULL)
        return -1;
    self->records = larger;
    return 0;
}

static int reserve_pieces(StagedWrites *self, Py_ssize_t more)
{
    Piece *larger =
        with_room(self->pieces, &self->room_for_pieces, self->num_pieces, more, sizeof(Piece));
    if (larger == NULL)
        return -1;
    self->pieces = larger;
    return 0;
}

static void free_arguments(Arguments *arguments)
{
    PyMem_Free(arguments->writes);
    PyMem_Free(arguments->ids);
}

/* Takes the spare memory, so that a call that is made meanwhile uses other. */
static Arguments take_arguments(StagedWrites *self)
{
    Arguments arguments = self->spare;
    memset(&self->spare, 0, sizeof(Arguments));
    arguments.num_writes = arguments.num_ids = 0;
    return arguments;
}

static void keep_arguments(StagedWrites *self, Arguments *arguments)
{
    free_arguments(&self->spare);
    self->spare = *arguments;
}

/* Reading arguments */

/* The sequence itself if it is a list or tuple, else a list of what it iterates over. */
static PyObject *listed(PyObject *sequence)
{
    if (PyList_CheckExact(sequence) || PyTuple_CheckExact(sequence)) {
        Py_INCREF(sequence);
        return sequence;
    }
    return PySequence_List(sequence);
}

/* An item, borrowed; NULL without an exception behind the end, which may have moved. */
static inline PyObject *item_of(PyObject *sequence, Py_ssize_t index)
{
    if (PyList_Check(sequence))
        return index < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, index) : NULL;
    return index < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, index) : NULL;
}

/* An integer. Returns 1 where it does not fit int32, -1 for an exception. */
static inline int read_int32(PyObject *value, int32_t *to)
{
    int overflow;
    long number;
    if (PyLong_Check(value)) {
        number = PyLong_AsLongAndOverflow(value, &overflow);
    } else {
        Py_INCREF(value);
        PyObject *integer = PyNumber_Index(value);
        Py_DECREF(value);
        if (integer == NULL)
            return -1;
        number = PyLong_AsLongAndOverflow(integer, &overflow);
        Py_DECREF(integer);
    }
    if (overflow || number != (int32_t)number)
        return 1;
    *to = (int32_t)number;
    return 0;
}

/* Appends the ids of one group to `to`; returns their number. */
static Py_ssize_t read_ids(PyObject *sequence, Arguments *to)
{
    PyObject *ids = listed(sequence);
    if (ids == NULL)
        return -1;
    Py_ssize_t length = PySequence_Fast_GET_SIZE(ids);
    if (reserve_ids(&to->ids, &to->room_for_ids, to->num_ids, length) < 0)
        goto failed;
    int32_t *place = to->ids + to->num_ids;
    for (Py_ssize_t index = 0; index < length; index++) {
        PyObject *value = item_of(ids, index);
        if (value == NULL) {
            PyErr_SetString(PyExc_IndexError, "list index out of range");
            goto failed;
        }
        int outcome = read_int32(value, place + index);
        if (outcome > 0)
            PyErr_SetString(PyExc_OverflowError, "a block id does not fit int32");
        if (outcome != 0)
            goto failed;
    }
    to->num_ids += length;
    Py_DECREF(ids);
    return length;
failed:
    Py_DECREF(ids);
    return -1;
}

/* Appends the writes of a request to `to`. Returns 1 if it must be refused, -1 for an exception. */
static int read_request(
    StagedWrites *self, PyObject *req_index, PyObject *block_ids, PyObject *overwrite, Arguments *to)
{
    Py_ssize_t num_groups = self->num_groups, group = 0;
    int32_t row = NONE;
    if (read_int32(req_index, &row) < 0)
        return -1;
    if (reserve_writes(to, num_groups) < 0)
        return -1;
    Write *writes = to->writes + to->num_writes;
    PyObject *lists = listed(block_ids), *ids;
    if (lists == NULL)
        return -1;
    for (; (ids = item_of(lists, group)) != NULL; group++) {
        Py_INCREF(ids);
        Py_ssize_t length = read_ids(ids, to);
        Py_DECREF(ids);
        if (length < 0) {
            Py_DECREF(lists);
            return -1;
        }
        if (group < num_groups) {
            writes[group].row = row;
            writes[group].length = length > INT32_MAX ? INT32_MAX : (int32_t)length;
        }
    }
    Py_DECREF(lists);
    if (row < 0 || row >= self->max_num_reqs || group != num_groups)
        return 1;
    int overwrites = PyObject_IsTrue(overwrite);
    if (overwrites < 0)
        return -1;
    for (group = 0; group < num_groups; group++)
        writes[group].overwrite = overwrites;
    to->num_writes += num_groups;
    return 0;
}

/* As `read_request`, for all requests of `append_many`. */
static int read_requests(
    StagedWrites *self, PyObject *rows, PyObject *block_ids, PyObject *overwrite, Arguments *to)
{
    Py_ssize_t num_reqs = PySequence_Fast_GET_SIZE(rows), index = 0;
    if (PySequence_Fast_GET_SIZE(block_ids) != num_reqs ||
        PySequence_Fast_GET_SIZE(overwrite) != num_reqs)
        return 1;
    for (;; index++) {
        PyObject *row = item_of(rows, index), *lists = item_of(block_ids, index);
        PyObject *overwrites = item_of(overwrite, index);
        if (row == NULL || lists == NULL || overwrites == NULL)
            break;
        Py_INCREF(row);
        Py_INCREF(lists);
        Py_INCREF(overwrites);
        int outcome = read_request(self, row, lists, overwrites, to);
        Py_DECREF(row);
        Py_DECREF(lists);
        Py_DECREF(overwrites);
        if (outcome != 0)
            return outcome;
    }
    return index == num_reqs ? 0 : 1;
}

/* Staging; no Python code runs from here on */

/* Drops ids and pieces of intervals that were overwritten. */
static int compact(StagedWrites *self)
{
    Py_ssize_t room_for_ids = 0, room_for_pieces = 0, place = 0, num_pieces = 0;
    int32_t *ids = with_room(NULL, &room_for_ids, 0, self->num_ids, sizeof(int32_t));
    Piece *pieces = with_room(NULL, &room_for_pieces, 0, self->num_records, sizeof(Piece));
    if (ids == NULL || pieces == NULL) {
        PyMem_Free(ids);
        PyMem_Free(pieces);
        return -1;
    }
    for (Py_ssize_t index = 0; index < self->num_records; index++) {
        Record *record = &self->records[index];
        if (record->head == NONE)
            continue;
        Py_ssize_t first = place;
        for (int32_t at = record->head; at != NONE; at = self->pieces[at].next) {
            const Piece *piece = &self->pieces[at];
            memcpy(ids + place, self->ids + piece->first, (size_t)piece->length * sizeof(int32_t));
            place += piece->length;
        }
        record->head = record->tail = (int32_t)num_pieces;
        pieces[num_pieces++] = (Piece){first, record->length, NONE};
    }
    PyMem_Free(self->ids);
    PyMem_Free(self->pieces);
    self->ids = ids;
    self->size_of_ids = place;
    self->room_for_ids = room_for_ids;
    self->pieces = pieces;
    self->num_pieces = num_pieces;
    self->room_for_pieces = room_for_pieces;
    return 0;
}

/* Makes room for all that a call may add. */
static int make_room(StagedWrites *self, const Arguments *arguments)
{
    if (arguments->num_ids > self->room_for_ids - self->size_of_ids &&
        self->size_of_ids > 2 * self->num_ids && compact(self) < 0)
        return -1;
    if (arguments->num_writes > INT32_MAX - self->num_pieces) {
        PyErr_NoMemory();
        return -1;
    }
    if (reserve_ids(&self->ids, &self->room_for_ids, self->size_of_ids, arguments->num_ids) < 0 ||
        reserve_pieces(self, arguments->num_writes) < 0)
        return -1;
    return reserve_records(self, arguments->num_writes);
}

/* The most blocks of any row, which are counted anew only where they are asked for. */
static long long longest_of(StagedWrites *self)
{
    if (self->has_shrunk) {
        self->longest = 0;
        for (Py_ssize_t index = 0; index < self->num_groups * self->max_num_reqs; index++)
            if (self->counts[index] > self->longest)
                self->longest = self->counts[index];
        self->has_shrunk = 0;
    }
    return self->longest;
}

/* Counts the blocks of all writes. Returns 1, with nothing changed, if a row becomes too wide. */
static int count_blocks(StagedWrites *self, Arguments *arguments)
{
    Py_ssize_t index = 0;
    long long longest = self->longest;
    int has_shrunk = self->has_shrunk;
    while (index < arguments->num_writes) {
        int32_t *counts = self->counts;
        for (Py_ssize_t group = 0; group < self->num_groups; group++, index++) {
            Write *write = &arguments->writes[index];
            int32_t *count = counts + write->row;
            int64_t end = (int64_t)(write->overwrite ? 0 : *count) + write->length;
            if (end > self->groups[group].width)
                goto refused;
            write->before = *count;
            *count = (int32_t)end;
            if (write->overwrite && write->before > end && write->before >= longest)
                has_shrunk = 1;
            if (end > longest) {
                longest = end;
                has_shrunk = 0;
            }
            counts += self->max_num_reqs;
        }
    }
    self->longest = longest;
    self->has_shrunk = has_shrunk;
    return 0;
refused:
    /* Backwards, since a row may occur twice. */
    while (index-- > 0) {
        const Write *write = &arguments->writes[index];
        self->counts[index % self->num_groups * self->max_num_reqs + write->row] = write->before;
    }
    return 1;
}

/* The record of a row, a new one if it has none. */
static inline Record *record_of(StagedWrites *self, Py_ssize_t group, const Write *write)
{
    Mark *mark = &self->marks[group * self->max_num_reqs + write->row];
    if (mark->generation == self->generation) {
        Record *record = &self->records[mark->record];
        if (write->overwrite) {
            self->num_ids -= record->length;
            record->start = record->length = 0;
            record->head = record->tail = NONE;
        }
        return record;
    }
    int32_t index = (int32_t)self->num_records++;
    int32_t start = write->overwrite ? 0 : write->before;
    self->records[index] = (Record){write->row, start, 0, NONE, NONE, NONE};
    Group *of = &self->groups[group];
    if (of->tail == NONE)
        of->head = index;
    else
        self->records[of->tail].next = index;
    of->tail = index;
    of->num_records++;
    mark->generation = self->generation;
    mark->record = index;
    return &self->records[index];
}

static inline void extend(StagedWrites *self, Record *record, const int32_t *ids, int32_t length)
{
    Py_ssize_t first = self->size_of_ids;
    if (length == 1)
        self->ids[first] = ids[0];
    else
        memcpy(self->ids + first, ids, (size_t)length * sizeof(int32_t));
    self->size_of_ids += length;
    self->num_ids += length;
    record->length += length;
    Piece *tail = record->tail == NONE ? NULL : &self->pieces[record->tail];
    if (tail != NULL && tail->first + tail->length == first) {
        tail->length += length;
        return;
    }
    int32_t index = (int32_t)self->num_pieces++;
    self->pieces[index] = (Piece){first, length, NONE};
    if (tail == NULL)
        record->head = index;
    else
        tail->next = index;
    record->tail = index;
}

/* Stages what has been read. Returns 1 if it is refused, -1 for an exception; then nothing has been
 * changed. */
static int stage(StagedWrites *self, Arguments *arguments, int redirect)
{
    if (make_room(self, arguments) < 0)
        return -1;
    if (count_blocks(self, arguments) != 0)
        return 1;
    int32_t *ids = arguments->ids;
    if (redirect && arguments->num_ids > 0)
        memset(ids, NULL_BLOCK_ID, (size_t)arguments->num_ids * sizeof(int32_t));
    for (Py_ssize_t index = 0; index < arguments->num_writes;) {
        for (Py_ssize_t group = 0; group < self->num_groups; group++, index++) {
            const Write *write = &arguments->writes[index];
            if (!write->overwrite && write->length == 0)
                continue;
            Record *record = record_of(self, group, write);
            if (write->length > 0)
                extend(self, record, ids, write->length);
            ids += write->length;
        }
    }
    return 0;
}

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

static PyObject *append(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (!takes("append", nargs, 4))
        return NULL;
    Arguments arguments = take_arguments(self);
    int outcome = read_request(self, args[0], args[1], args[2], &arguments);
    return finish(self, &arguments, outcome, args[3]);
}

/* Sorts arguments that may have names into `given`. */
static int take_request(PyObject *const *args, Py_ssize_t nargs, PyObject *names, PyObject **given)
{
    static const char *known[] = {"req_index", "new_block_ids", "overwrite"};
    Py_ssize_t num_names = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (!takes("append_block_ids", nargs + num_names, 3))
        return 0;
    for (Py_ssize_t place = 0; place < nargs; place++)
        given[place] = args[place];
    for (Py_ssize_t index = 0; index < num_names; index++) {
        PyObject *name = PyTuple_GET_ITEM(names, index);
        Py_ssize_t place = 0;
        while (place < 3 && PyUnicode_CompareWithASCIIString(name, known[place]) != 0)
            place++;
        if (place == 3 || given[place] != NULL) {
            PyErr_Format(PyExc_TypeError,
                         "append_block_ids has no argument %R, or was given two of it", name);
            return 0;
        }
        given[place] = args[nargs + index];
    }
    return 1;
}

static PyObject *append_block_ids(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *names)
{
    PyObject *given[3] = {NULL, NULL, NULL};
    if (names != NULL || nargs != 3) {
        if (!take_request(args, nargs, names, given))
            return NULL;
        args = given;
    }
    Arguments arguments = take_arguments(self);
    int outcome = read_request(self, args[0], args[1], args[2], &arguments);
    PyObject *staged = finish(self, &arguments, outcome, self->redirects ? Py_True : Py_False);
    if (staged != Py_False) {
        Py_XDECREF(staged);
        if (staged == NULL)
            return NULL;
        Py_RETURN_NONE;
    }
    Py_DECREF(staged);
    if (self->refuse != NULL) {
        PyObject *said = PyObject_CallFunctionObjArgs(self->refuse, args[0], args[1], args[2], NULL);
        if (said == NULL)
            return NULL;
        Py_DECREF(said);
    }
    PyErr_SetString(PyExc_ValueError, "the request is refused");
    return NULL;
}

static PyObject *append_many(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (!takes("append_many", nargs, 4))
        return NULL;
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
    return finish(self, &arguments, outcome, args[3]);
}

static void forget(StagedWrites *self)
{
    self->num_records = self->num_pieces = self->size_of_ids = self->num_ids = 0;
    if (++self->generation == 0) {
        size_t num_marks = (size_t)(self->num_groups * self->max_num_reqs);
        memset(self->marks, 0, num_marks * sizeof(Mark));
        self->generation = 1;
    }
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

/* Methods that pack */

/* Reads the view and the place in it that a method was given; release the view. */
static int get_view(PyObject *view, PyObject *place, const char *name, Py_buffer *to,
                    Py_ssize_t *first)
{
    if (PyObject_GetBuffer(view, to, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError) &&
            !PyErr_ExceptionMatches(PyExc_ValueError))
            return -1;
        PyErr_Clear();
        goto refused;
    }
    if (to->ndim != 1 || to->format == NULL || strcmp(to->format, "i") != 0) {
        PyBuffer_Release(to);
        goto refused;
    }
    *first = PyNumber_AsSsize_t(place, PyExc_ValueError);
    if (*first == -1 && PyErr_Occurred()) {
        PyBuffer_Release(to);
        return -1;
    }
    if (*first < 0) {
        PyErr_Format(PyExc_ValueError, "%s is %zd; expected 0 or more", name, *first);
        PyBuffer_Release(to);
        return -1;
    }
    return 0;
refused:
    PyErr_SetString(PyExc_ValueError,
                    "view is not a writable, contiguous view of int32 elements");
    return -1;
}

/* Whether `size` elements from `first` on are in the view, and can be told in int32. */
static int has_room(const Py_buffer *view, Py_ssize_t first, Py_ssize_t size)
{
    Py_ssize_t length = view->shape[0];
    if (first > PY_SSIZE_T_MAX - size || first + size > length) {
        PyErr_Format(PyExc_ValueError, "view has %zd elements; expected %zd or more", length,
                     first > PY_SSIZE_T_MAX - size ? PY_SSIZE_T_MAX : first + size);
        return 0;
    }
    if (first + size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the place of a block id does not fit int32");
        return 0;
    }
    return 1;
}

static inline int32_t *copy_ids(const StagedWrites *self, const Record *record, int32_t *to)
{
    for (int32_t at = record->head; at != NONE; at = self->pieces[at].next) {
        const Piece *piece = &self->pieces[at];
        if (piece->length == 1)
            *to = self->ids[piece->first];
        else
            memcpy(to, self->ids + piece->first, (size_t)piece->length * sizeof(int32_t));
        to += piece->length;
    }
    return to;
}

static Py_ssize_t size_of_pack(const StagedWrites *self)
{
    return RECORD_FIELDS * self->num_records + self->num_ids;
}

/* Writes records and ids to `to`, which has room; `first` is its place in the view. */
static void write_pack(const StagedWrites *self, int32_t *to, Py_ssize_t first)
{
    int32_t *ids = to + RECORD_FIELDS * self->num_records, *start = to;
    for (Py_ssize_t group = 0; group < self->num_groups; group++) {
        for (int32_t at = self->groups[group].head; at != NONE; at = self->records[at].next) {
            const Record *record = &self->records[at];
            to[0] = (int32_t)group;
            to[1] = record->row;
            to[2] = record->start;
            to[3] = record->length;
            to[4] = (int32_t)(first + (ids - start));
            to += RECORD_FIELDS;
            ids = copy_ids(self, record, ids);
        }
    }
}

static PyObject *pack(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    Py_ssize_t first;
    if (!takes("pack", nargs, 2))
        return NULL;
    /* First of all: a new list may start the garbage collector, and with it any code. */
    PyObject *records_per_group = PyList_New(self->num_groups);
    if (records_per_group == NULL)
        return NULL;
    if (get_view(args[0], args[1], "first", &view, &first) < 0)
        goto failed;
    for (Py_ssize_t group = 0; group < self->num_groups; group++) {
        PyObject *number = PyLong_FromLong(self->groups[group].num_records);
        if (number == NULL)
            goto release;
        PyList_SET_ITEM(records_per_group, group, number);
    }
    if (!has_room(&view, first, size_of_pack(self)))
        goto release;
    write_pack(self, (int32_t *)view.buf + first, first);
    PyBuffer_Release(&view);
    return records_per_group;
release:
    PyBuffer_Release(&view);
failed:
    Py_DECREF(records_per_group);
    return NULL;
}

static PyObject *pack_step(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    Py_ssize_t first;
    int32_t step;
    if (!takes("pack_step", nargs, 3))
        return NULL;
    int outcome = read_int32(args[2], &step);
    if (outcome > 0)
        PyErr_SetString(PyExc_OverflowError, "step does not fit int32");
    if (outcome != 0 || get_view(args[0], args[1], "first_record", &view, &first) < 0)
        return NULL;
    Py_ssize_t num_marks = self->num_groups * self->max_num_reqs;
    Py_ssize_t size = STEP_RECORD_FIELDS * self->num_records + self->num_ids;
    for (Py_ssize_t index = 0; index < self->num_records; index++)
        size -= self->records[index].length == 1;
    if (first < MARK_FIELDS * num_marks) {
        PyErr_Format(PyExc_ValueError, "first_record is %zd; expected %zd or more, after the marks",
                     first, MARK_FIELDS * num_marks);
        goto failed;
    }
    if (!has_room(&view, first, size))
        goto failed;
    int32_t *start = view.buf, *to = start + first;
    int32_t *ids = to + STEP_RECORD_FIELDS * self->num_records;
    for (Py_ssize_t group = 0; group < self->num_groups; group++) {
        int32_t *marks = start + MARK_FIELDS * self->max_num_reqs * group;
        for (int32_t at = self->groups[group].head; at != NONE; at = self->records[at].next) {
            const Record *record = &self->records[at];
            to[0] = (int32_t)group;
            to[1] = record->row;
            to[2] = record->start;
            to[3] = record->start + record->length;
            if (record->length == 1) {
                to[4] = self->ids[self->pieces[record->head].first];
            } else {
                to[4] = (int32_t)(ids - start);
                ids = copy_ids(self, record, ids);
            }
            to[5] = step;
            to[6] = to[7] = 0;
            /* A mark is part of its record: start, end, value, step. */
            memcpy(marks + MARK_FIELDS * record->row, to + 2, MARK_FIELDS * sizeof(int32_t));
            to += STEP_RECORD_FIELDS;
        }
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
failed:
    PyBuffer_Release(&view);
    return NULL;
}

/* Takes a view of int32 or int64 elements; release it. */
static int get_words(PyObject *object, const char *name, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND) == 0) {
        if (view->ndim == 1 && view->format != NULL &&
            (strcmp(view->format, "i") == 0 || strcmp(view->format, "q") == 0))
            return 0;
        PyBuffer_Release(view);
    } else if (!PyErr_ExceptionMatches(PyExc_BufferError) &&
               !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    }
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError,
                 "%s is not a writable, contiguous view of int32 or int64 elements", name);
    return -1;
}

/* Which rows have an interval, and in each word how many the rows before it have. */
static void write_bitmap(const StagedWrites *self, uint64_t *bitmap, Py_ssize_t per_group)
{
    memset(bitmap, 0, (size_t)(per_group * self->num_groups) * sizeof(uint64_t));
    uint64_t before = 0, *words = bitmap;
    for (Py_ssize_t group = 0; group < self->num_groups; group++, words += per_group) {
        for (int32_t at = self->groups[group].head; at != NONE; at = self->records[at].next) {
            int32_t row = self->records[at].row;
            words[row / BITMAP_ROWS] |= (uint64_t)1 << row % BITMAP_ROWS;
        }
        for (Py_ssize_t index = 0; index < per_group; index++) {
            uint64_t bits = words[index];
            words[index] = before << BITMAP_ROWS | bits;
            before += (uint64_t)__builtin_popcountll(bits);
        }
    }
}

/* The intervals in the order of groups and rows, and apart a list of those that have another number
 * of ids than one, and their ids. */
static void write_payload(const StagedWrites *self, const uint64_t *bitmap, Py_ssize_t per_group,
                          Py_ssize_t num_apart, uint64_t *payload, int32_t *listed)
{
    int32_t *first = listed, *ids = listed + num_apart;
    for (Py_ssize_t group = 0; group < self->num_groups; group++, bitmap += per_group) {
        for (int32_t at = self->groups[group].head; at != NONE; at = self->records[at].next) {
            const Record *record = &self->records[at];
            uint64_t bits = bitmap[record->row / BITMAP_ROWS];
            uint64_t below = bits & (((uint64_t)1 << record->row % BITMAP_ROWS) - 1);
            int32_t number = (int32_t)(bits >> BITMAP_ROWS) + __builtin_popcountll(below);
            uint64_t word = (uint64_t)record->row << 48 | (uint64_t)record->start << 32;
            if (record->length == 1) {
                payload[number] = word | (uint32_t)self->ids[self->pieces[record->head].first];
                continue;
            }
            uint64_t place = (uint64_t)(ids - first);
            payload[number] = SEVERAL | word | (uint64_t)record->length << 16 | place;
            *listed++ = number;
            ids = copy_ids(self, record, ids);
        }
    }
    if ((ids - first) % 2)
        *ids = 0; /* half a word */
}

/* Words of a bitmap for the rows of a group. */
static Py_ssize_t bitmap_words(const StagedWrites *self)
{
    return (self->max_num_reqs + BITMAP_ROWS - 1) / BITMAP_ROWS;
}

/* As `Packing.pack`; the bitmap is long enough. */
static int pack_into(PyObject *object, const Room *room, Packed *packed)
{
    const StagedWrites *self = (StagedWrites *)object;
    Py_ssize_t per_group = bitmap_words(self), num_apart = 0, num_ids = 0;
    if (self->num_records > MOST_WORDS)
        return 0;
    for (Py_ssize_t index = 0; index < self->num_records; index++) {
        const Record *record = &self->records[index];
        if (record->start > MOST_WORDS)
            return 0;
        if (record->length != 1) {
            num_apart++;
            num_ids += record->length + 1;
        }
    }
    if (num_ids > MOST_WORDS)
        return 0;
    Py_ssize_t num_words = self->num_records, for_ids = (num_ids + 1) / 2;
    write_bitmap(self, room->bitmap, per_group);
    if (room->ids == NULL && num_words + for_ids <= room->payload_room)
        write_payload(self, room->bitmap, per_group, num_apart, room->payload,
                      (int32_t *)(room->payload + num_words));
    else if (room->ids != NULL && num_words <= room->payload_room && for_ids <= room->ids_room)
        write_payload(self, room->bitmap, per_group, num_apart, room->payload, room->ids);
    *packed = (Packed){num_words, num_apart, num_words + for_ids};
    return 1;
}

static PyObject *pack_words(StagedWrites *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const char *names[] = {"bitmap", "payload", "ids_apart"};
    Py_buffer views[3];
    Py_ssize_t given = nargs == 3 && args[2] == Py_None ? 2 : nargs, taken = 0;
    if (given != 3 && !takes("pack_words", given, 2))
        return NULL;
    while (taken < given && get_words(args[taken], names[taken], &views[taken]) == 0)
        taken++;
    int fits = -1;
    Packed packed;
    Py_ssize_t wanted = bitmap_words(self) * self->num_groups;
    if (taken == given && views[0].len / (Py_ssize_t)sizeof(uint64_t) < wanted) {
        PyErr_Format(PyExc_ValueError, "bitmap has %zd words; expected %zd groups of %zd",
                     views[0].len / (Py_ssize_t)sizeof(uint64_t), self->num_groups,
                     bitmap_words(self));
    } else if (taken == given) {
        Py_ssize_t words = views[1].len / (Py_ssize_t)sizeof(uint64_t);
        Room room = {views[0].buf, views[1].buf, words, NULL, 0};
        if (given == 3) {
            room.ids = views[2].buf;
            room.ids_room = views[2].len / (Py_ssize_t)sizeof(uint64_t);
        }
        fits = pack_into((PyObject *)self, &room, &packed);
    }
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    if (fits < 0)
        return NULL;
    if (fits == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLL)", packed.num_words, packed.num_apart, packed.size);
}

/* `(group, row, start, ids)` of a packed record; its place is counted from `packed`. */
static PyObject *interval_of(const int32_t *record, const int32_t *packed)
{
    PyObject *ids = PyList_New(record[3]);
    if (ids == NULL)
        return NULL;
    for (int32_t index = 0; index < record[3]; index++) {
        PyObject *number = PyLong_FromLong(packed[record[4] + index]);
        if (number == NULL) {
            Py_DECREF(ids);
            return NULL;
        }
        PyList_SET_ITEM(ids, index, number);
    }
    return Py_BuildValue("(iiiN)", record[0], record[1], record[2], ids);
}

static PyObject *intervals(StagedWrites *self, PyObject *Py_UNUSED(none))
{
    /* Of a copy: a new list may start the garbage collector, and with it any code. */
    Py_ssize_t num_records = self->num_records, size = size_of_pack(self);
    if (size > INT32_MAX)
        return PyErr_NoMemory();
    int32_t *packed = PyMem_Malloc((size_t)size * sizeof(int32_t));
    if (packed == NULL)
        return PyErr_NoMemory();
    write_pack(self, packed, 0);
    PyObject *found = PyList_New(num_records);
    for (Py_ssize_t index = 0; found != NULL && index < num_records; index++) {
        PyObject *interval = interval_of(packed + RECORD_FIELDS * index, packed);
        if (interval == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, index, interval);
    }
    PyMem_Free(packed);
    return found;
}

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
    static const Packing packing = {pack_into, longest_in, clear_in};
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

static int set_refuse(StagedWrites *self, PyObject *value, void *Py_UNUSED(none))
{
    PyObject *before = self->refuse;
    self->refuse = Py_XNewRef(value);
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
    self->longest = number;
    self->has_shrunk = 0;
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
    self->marks = PyMem_Calloc((size_t)(self->num_groups * self->max_num_reqs), sizeof(Mark));
    if (self->marks == NULL) {
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
    PyMem_Free(self->marks);
    PyMem_Free(self->records);
    PyMem_Free(self->pieces);
    PyMem_Free(self->ids);
    free_arguments(&self->spare);
    Py_XDECREF(self->refuse);
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

/* No state outside of the module: each import of the file makes a module and a type of its own. */
static int execute(PyObject *module)
{
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
