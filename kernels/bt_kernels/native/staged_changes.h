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
    self->records[index] = (Record){write->row, start, 0, NONE, NONE, NONE, (int32_t)group};
    Group *of = &self->groups[group];
    if (of->tail == NONE) {
        of->head = index;
    } else {
        self->records[of->tail].next = index;
        self->is_ordered &= write->row > self->records[of->tail].row;
    }
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
