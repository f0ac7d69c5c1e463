/* numpy's arrays, without a call of Python and without numpy's headers, which the compiler may not
   find: places in its table of functions, and the first fields of its arrays, have been the same
   since numpy 1.7. */

typedef struct {
    PyObject_HEAD
    void *data;
    int num_dimensions;
    Py_ssize_t *shape, *strides;
    PyObject *base, *dtype;
} Array;

enum { NPY_INT32 = 5, ARRAY_TYPE = 2, NEW_ARRAY = 93 };

/* numpy's table, and the dtypes of arrays that are taken. */
typedef struct {
    void **functions;
    PyObject *int32, *int64;
} Numpy;

/* The elements of a vector, side by side; NULL for anything else. */
static void *elements_of(PyObject *object, const Numpy *numpy, PyObject *dtype, long long *size) {
    if (Py_TYPE(object) != (PyTypeObject *)numpy->functions[ARRAY_TYPE]) return NULL;
    const Array *array = (const Array *)object;
    Py_ssize_t itemsize = dtype == numpy->int64 ? 8 : 4;
    if (array->dtype != dtype || array->num_dimensions != 1 ||
        (array->shape[0] > 1 && array->strides[0] != itemsize))
        return NULL;
    *size = array->shape[0];
    /* In the order of bytes of this machine, as the dtype says; but perhaps between its words. */
    return (uintptr_t)array->data % (uintptr_t)itemsize ? NULL : array->data;
}

/* A new int32 vector, and its elements; NULL with an error. */
static int32_t *new_vector(const Numpy *numpy, long long size, PyObject **vector) {
    typedef PyObject *(*New)(PyTypeObject *, int, const Py_ssize_t *, int, const Py_ssize_t *, void *,
                             int, int, PyObject *);
    Py_ssize_t shape[] = {(Py_ssize_t)size};
    New new_array = (New)numpy->functions[NEW_ARRAY];
    *vector = new_array((PyTypeObject *)numpy->functions[ARRAY_TYPE], 1, shape, NPY_INT32, NULL, NULL,
                        0, 0, NULL);
    return *vector ? ((Array *)*vector)->data : NULL;
}
