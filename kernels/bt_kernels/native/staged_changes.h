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
    Longest *longest = &self->longest;
    if (longest->has_shrunk) {
        longest->number = 0;
        for (Py_ssize_t index = 0; index < self->num_groups * self->max_num_reqs; index++)
            if (self->counts[index] > longest->number)
                longest->number = self->counts[index];
        longest->has_shrunk = 0;
    }
    return longest->number;
}

/* Notes that a row which had so many blocks now has so many. */
static inline void note_end(Longest *longest, int32_t before, int64_t end)
{
    if (before > end && before >= longest->number)
        longest->has_shrunk = 1;
    if (end > longest->number) {
        longest->number = end;
        longest->has_shrunk = 0;
    }
}

/* Counts the blocks of all writes. Returns 1, with nothing changed, if a row becomes too wide. */
static int count_blocks(StagedWrites *self, Arguments *arguments)
{
    Py_ssize_t index = 0;
    Longest longest = self->longest;
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
            note_end(&longest, write->before, end);
            counts += self->max_num_reqs;
        }
    }
    self->longest = longest;
    return 0;
refused:
    /* Backwards, since a row may occur twice. */
    while (index-- > 0) {
        const Write *write = &arguments->writes[index];
        self->counts[index % self->num_groups * self->max_num_reqs + write->row] = write->before;
    }
    return 1;
}

/* The record of a row, a new one if it has none; `before`: the blocks that the row had. */
static inline Record *record_of(StagedWrites *self, Py_ssize_t group, int32_t row, int32_t before,
                                int overwrite)
{
    uint64_t *word = word_of(self->rows + group * self->words_per_group, row);
    int32_t *place = &self->places[group * self->max_num_reqs + row];
    if (*word & bit_of(row)) {
        Record *record = &self->records[*place];
        if (overwrite) {
            self->num_ids -= record->length;
            record->start = record->length = 0;
            record->head = record->tail = NONE;
        }
        return record;
    }
    int32_t index = (int32_t)self->num_records++;
    int32_t start = overwrite ? 0 : before;
    self->records[index] = (Record){row, start, 0, NONE, NONE, NONE, (int32_t)group};
    Group *of = &self->groups[group];
    if (of->tail == NONE) {
        of->head = index;
    } else {
        self->records[of->tail].next = index;
        self->is_ordered &= row > self->records[of->tail].row;
    }
    of->tail = index;
    of->num_records++;
    *word += ONE_ROW + bit_of(row);
    *place = index;
    return &self->records[index];
}

/* Lengthens an interval by the next of the ids, which have been written. */
static inline void add_piece(StagedWrites *self, Record *record, int32_t length)
{
    Py_ssize_t first = self->size_of_ids;
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
    int32_t *ids = self->ids + self->size_of_ids;
    size_t size = (size_t)arguments->num_ids * sizeof(int32_t);
    if (redirect)
        memset(ids, NULL_BLOCK_ID, size);
    else if (size > 0)
        memcpy(ids, arguments->ids, size);
    for (Py_ssize_t index = 0; index < arguments->num_writes;) {
        for (Py_ssize_t group = 0; group < self->num_groups; group++, index++) {
            const Write *write = &arguments->writes[index];
            if (!write->overwrite && write->length == 0)
                continue;
            Record *record = record_of(self, group, write->row, write->before, write->overwrite);
            if (write->length > 0)
                add_piece(self, record, write->length);
        }
    }
    return 0;
}

/* Whether a call may add so many records and pieces without more memory. */
static inline int has_room_for(const StagedWrites *self, Py_ssize_t more)
{
    return more <= self->room_for_records - self->num_records &&
           more <= self->room_for_pieces - self->num_pieces &&
           more <= INT32_MAX - self->num_pieces;
}

/* Stages a request as engines have it, of exact lists, tuples and small integers, which are read once
 * and where they lie. Returns 0, with nothing changed, for all else: also for what must be refused,
 * and where memory has to grow. No Python code runs in between, so what was checked stays so.
 *
 * Not inlined: that takes more time, since its own functions are not inlined then. */
__attribute__((noinline)) static int stage_plain(
    StagedWrites *self, PyObject *req_index, PyObject *block_ids, PyObject *overwrite)
{
    Py_ssize_t num_groups = self->num_groups, num_rows = self->max_num_reqs;
    int overwrites = overwrite == Py_True;
    int32_t row;
    Items lists, ids = {NULL, 0};
    if (!small_int(req_index, &row) || row < 0 || row >= num_rows ||
        !items_of(block_ids, &lists) || lists.length != num_groups ||
        (!overwrites && overwrite != Py_False) || !has_room_for(self, num_groups))
        return 0;
    int32_t *place = self->ids + self->size_of_ids, *end_of_room = self->ids + self->room_for_ids;
    for (Py_ssize_t group = 0; group < num_groups; group++) {
        if (!items_of(lists.items[group], &ids) || ids.length > end_of_room - place)
            return 0;
        for (Py_ssize_t index = 0; index < ids.length; index++)
            if (!small_int(ids.items[index], place++))
                return 0;
        int64_t before = overwrites ? 0 : self->counts[group * num_rows + row];
        if (before + ids.length > self->groups[group].width)
            return 0;
    }
    for (Py_ssize_t group = 0; group < num_groups; group++) {
        items_of(lists.items[group], &ids);
        int32_t *count = &self->counts[group * num_rows + row], before = *count;
        int32_t length = (int32_t)ids.length;
        *count = (overwrites ? 0 : before) + length;
        note_end(&self->longest, before, *count);
        if (!overwrites && length == 0)
            continue;
        Record *record = record_of(self, group, row, before, overwrites);
        if (length > 0)
            add_piece(self, record, length);
    }
    return 1;
}
