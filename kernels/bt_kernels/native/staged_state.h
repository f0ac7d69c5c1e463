/* What is staged, and the memory that it takes. */

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
#define ONE_ROW ((uint64_t)1 << BITMAP_ROWS) /* counted above the bits */
#define SEVERAL ((uint64_t)1 << 63)
#define PIECE_IDS 512
#define ALIGNED_IDS 4
#define MOST_WORDS 65535 /* that a bitmap can count, and a word can tell a place or number of */

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
    int32_t group;
} Record;

typedef struct {
    int32_t width;
    int32_t head, tail; /* records or NONE */
    int32_t num_records;
    int32_t next_place; /* of its next interval, while they are packed */
} Group;

/* The most blocks of any row; a bound, if a row that had as many has fewer. */
typedef struct {
    long long number;
    int has_shrunk;
} Longest;

typedef struct {
    PyObject_HEAD
    Py_buffer num_blocks; /* [num_groups, max_num_reqs] */
    int32_t *counts;      /* its elements */
    Py_ssize_t num_groups, max_num_reqs;
    Group *groups;
    uint64_t *rows;  /* [num_groups, words_per_group]: rows with a record, as `pack_into` has them */
    Py_ssize_t words_per_group;
    int32_t *places; /* [num_groups, max_num_reqs]: the record of each of these rows */
    Record *records;
    Py_ssize_t num_records, room_for_records;
    Piece *pieces;
    Py_ssize_t num_pieces, room_for_pieces;
    int32_t *ids; /* with those of intervals that were overwritten since */
    Py_ssize_t size_of_ids, room_for_ids;
    Py_ssize_t num_ids; /* without them */
    Longest longest;
    int is_ordered;  /* the rows of each group were staged in ascending order */
    Arguments spare; /* memory for the next call */
    /* What says why a request is refused, or several; NULL: nothing does. */
    PyObject *refuse, *refuse_many;
    char redirects;   /* ids are staged as the null block */
} StagedWrites;

/* A bitmap's word for a row, and the bit in it; the rows of a word are counted above the bits. */
static inline uint64_t *word_of(uint64_t *bitmap, int32_t row)
{
    return &bitmap[(uint32_t)row / BITMAP_ROWS];
}

static inline uint64_t bit_of(int32_t row) { return (uint64_t)1 << (uint32_t)row % BITMAP_ROWS; }

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
