/* What `launcher.c` calls of `staged.c`, without Python on the way. */

#include <stdint.h>

#define PACKING "staged.StagedWrites.packing" /* name of the capsule that has it */

/* Where words go, and room for how many; see `StagedWrites.pack_words`. */
typedef struct {
    uint64_t *bitmap, *payload;
    int64_t payload_room;
    int32_t *ids;     /* NULL: the payload */
    int64_t ids_room; /* words of two */
} Room;

/* How many intervals there are, and pieces of those with another number of ids than one; and words
 * of these two, of them and the ids, of ids that are apart; and ids of the longest. */
typedef struct {
    long long num_words, num_pieces, head, size, apart, longest;
} Packed;

typedef struct {
    int (*pack)(PyObject *staged, const Room *room, Packed *packed); /* 0: words cannot tell it */
    long long (*longest)(PyObject *staged);
    void (*clear)(PyObject *staged);
    /* 1 if it has staged a request; 0, with nothing changed, if it leaves that to
     * `StagedWrites.append_block_ids`. No Python code runs. */
    int (*append)(PyObject *staged, PyObject *row, PyObject *block_ids, PyObject *overwrite);
} Packing;
