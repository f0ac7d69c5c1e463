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

/* The items of an exact list or tuple; 0 for all else. */
typedef struct {
    PyObject *const *items;
    Py_ssize_t length;
} Items;

static inline int items_of(PyObject *sequence, Items *to)
{
    if (PyList_CheckExact(sequence))
        *to = (Items){((PyListObject *)sequence)->ob_item, PyList_GET_SIZE(sequence)};
    else if (PyTuple_CheckExact(sequence))
        *to = (Items){((PyTupleObject *)sequence)->ob_item, PyTuple_GET_SIZE(sequence)};
    else
        return 0;
    return 1;
}

/* The value of an exact integer of one digit, which fits int32; 0 for all else. */
static inline int small_int(PyObject *value, int32_t *to)
{
    if (!PyLong_CheckExact(value))
        return 0;
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)value))
        return 0;
    *to = (int32_t)PyUnstable_Long_CompactValue((PyLongObject *)value);
#else
    Py_ssize_t size = Py_SIZE(value);
    if (size < -1 || size > 1)
        return 0;
    *to = (int32_t)(size * (Py_ssize_t)((PyLongObject *)value)->ob_digit[0]);
#endif
    return 1;
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
