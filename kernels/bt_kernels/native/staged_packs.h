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

/* Has each word tell how many rows with an interval are before it, in place of how many it has. */
static void number_rows(uint64_t *bitmap, Py_ssize_t num_words)
{
    uint64_t before = 0;
    for (Py_ssize_t index = 0; index < num_words; index++) {
        uint64_t number = bitmap[index] >> BITMAP_ROWS;
        bitmap[index] = before << BITMAP_ROWS | (bitmap[index] & (ONE_ROW - 1));
        before += number;
    }
}

static int32_t ceiling(int32_t number, int32_t by)
{
    return number / by + (number % by != 0);
}

/* How many intervals those of groups and rows before a record are, by the bitmap. */
static int32_t number_of(const Record *record, const uint64_t *bitmap)
{
    uint64_t bits = bitmap[record->row / BITMAP_ROWS];
    uint64_t below = bits & (((uint64_t)1 << record->row % BITMAP_ROWS) - 1);
    return (int32_t)(bits >> BITMAP_ROWS) + __builtin_popcountll(below);
}

/* The intervals in the order of groups and rows; a list of the pieces of those that have another
 * number of ids than one; and their ids, each at a multiple of `aligned` elements. */
static void write_payload(const StagedWrites *self, const uint64_t *bitmap, Py_ssize_t per_group,
                          const Packed *packed, uint64_t *payload, int32_t *ids, int32_t aligned)
{
    int32_t *listed = (int32_t *)(payload + packed->num_words), *first = ids;
    int32_t *end = listed + packed->num_pieces;
    for (Py_ssize_t group = 0; group < self->num_groups; group++, bitmap += per_group) {
        for (int32_t at = self->groups[group].head; at != NONE; at = self->records[at].next) {
            const Record *record = &self->records[at];
            int32_t number = number_of(record, bitmap);
            uint64_t word = (uint64_t)record->row << 48 | (uint64_t)record->start << 32;
            if (record->length == 1) {
                payload[number] = word | (uint32_t)self->ids[self->pieces[record->head].first];
                continue;
            }
            uint64_t place = (uint64_t)((ids - first) / aligned);
            payload[number] = SEVERAL | word | (uint64_t)record->length << 16 | place;
            for (int32_t piece = 0; piece < ceiling(record->length, PIECE_IDS); piece++)
                *listed++ = piece << 16 | number;
            ids = copy_ids(self, record, ids);
            while ((ids - first) % aligned)
                *ids++ = 0;
        }
    }
    if (packed->num_pieces % 2)
        *end = 0; /* half a word */
    if ((ids - first) % 2)
        *ids = 0;
}

/* The same where each interval has one id, and rows were staged in ascending order: then nothing has
 * to be looked up, and records are gone through as they lie in memory. */
static void write_ordered_ids(StagedWrites *self, const uint64_t *bitmap, Py_ssize_t per_group,
                              uint64_t *payload)
{
    for (Py_ssize_t group = 0; group < self->num_groups; group++)
        self->groups[group].next_place = (int32_t)(bitmap[group * per_group] >> BITMAP_ROWS);
    for (Py_ssize_t index = 0; index < self->num_records; index++) {
        const Record *record = &self->records[index];
        payload[self->groups[record->group].next_place++] =
            (uint64_t)record->row << 48 | (uint64_t)record->start << 32 |
            (uint32_t)self->ids[self->pieces[record->head].first];
    }
}

/* As `Packing.pack`; the bitmap is long enough. */
static int pack_into(PyObject *object, const Room *room, Packed *packed)
{
    StagedWrites *self = (StagedWrites *)object;
    Py_ssize_t per_group = self->words_per_group, num_pieces = 0, num_ids = 0, units = 0;
    int are_ordered_ids = self->is_ordered; /* and each interval has one id */
    long long longest = 0;
    if (self->num_records > MOST_WORDS)
        return 0;
    Py_ssize_t num_words = per_group * self->num_groups;
    memcpy(room->bitmap, self->rows, (size_t)num_words * sizeof(uint64_t));
    for (Py_ssize_t index = 0; index < self->num_records; index++) {
        const Record *record = &self->records[index];
        if (record->start > MOST_WORDS || record->length > MOST_WORDS)
            return 0;
        if (record->length > longest)
            longest = record->length;
        if (record->length != 1) {
            are_ordered_ids = 0;
            num_pieces += ceiling(record->length, PIECE_IDS);
            num_ids += record->length;
            units += ceiling(record->length, ALIGNED_IDS);
        }
    }
    if (units > MOST_WORDS)
        return 0;
    Py_ssize_t head = self->num_records + (num_pieces + 1) / 2, size = head + (num_ids + 1) / 2;
    *packed = (Packed){self->num_records, num_pieces, head, size, units * ALIGNED_IDS / 2,
                       longest};
    number_rows(room->bitmap, num_words);
    if (room->ids == NULL && size <= room->payload_room) {
        if (num_ids > MOST_WORDS)
            return 0;
        if (are_ordered_ids)
            write_ordered_ids(self, room->bitmap, per_group, room->payload);
        else
            write_payload(self, room->bitmap, per_group, packed, room->payload,
                          (int32_t *)(room->payload + head), 1);
    } else if (room->ids != NULL && head <= room->payload_room && packed->apart <= room->ids_room) {
        write_payload(self, room->bitmap, per_group, packed, room->payload, room->ids, ALIGNED_IDS);
    }
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
    Py_ssize_t wanted = self->words_per_group * self->num_groups;
    if (taken == given && views[0].len / (Py_ssize_t)sizeof(uint64_t) < wanted) {
        PyErr_Format(PyExc_ValueError, "bitmap has %zd words; expected %zd groups of %zd",
                     views[0].len / (Py_ssize_t)sizeof(uint64_t), self->num_groups,
                     self->words_per_group);
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
    return Py_BuildValue("(LLLLLL)", packed.num_words, packed.num_pieces, packed.head,
                         packed.size, packed.apart, packed.longest);
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
