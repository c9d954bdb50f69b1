/* Looks up keys in a table whose columns are mapped memory, and hashes the keys of a new one.

   rmqio/enrich/table/hashing.py and plain.py do the same without C. */

#include "_look_find.h"

/* hash_column(hashes, layout, size, length, values, data, offset): mixes a column into the hashes.
   The buffers are addresses; nulls count as zero or as empty. */
static PyObject *hash_column(PyObject *module, PyObject *args)
{
    Py_buffer hashes;
    int layout, size;
    Py_ssize_t length, offset;
    unsigned long long values_at, data_at;
    if (!PyArg_ParseTuple(args, "w*iinKKn", &hashes, &layout, &size, &length, &values_at, &data_at, &offset))
        return NULL;
    if (hashes.len != length * 8) {
        PyBuffer_Release(&hashes);
        PyErr_SetString(PyExc_ValueError, "the hashes and the column differ in length");
        return NULL;
    }
    uint64_t *hash = hashes.buf;
    const uint8_t *values = (const uint8_t *)(uintptr_t)values_at, *data = (const uint8_t *)(uintptr_t)data_at;
    int known = 1;
    Py_BEGIN_ALLOW_THREADS;
    switch (layout) {
    case TEXTS:
    case BYTES: {
        const int32_t *starts = (const int32_t *)values + offset;
        for (Py_ssize_t i = 0; i < length; i++)
            hash[i] = mix_bytes(hash[i], data + starts[i], (size_t)(starts[i + 1] - starts[i]));
        break;
    }
    case FIXED:
        for (Py_ssize_t i = 0; i < length; i++)
            hash[i] = mix_bytes(hash[i], values + (offset + i) * size, (size_t)size);
        break;
    case INTS:
        for (Py_ssize_t i = 0; i < length; i++)
            hash[i] = mix_int(hash[i], int_at(values, size, offset + i));
        break;
    case UNSIGNED:
        for (Py_ssize_t i = 0; i < length; i++)
            hash[i] = mix_int(hash[i], (int64_t)unsigned_at(values, size, offset + i));
        break;
    case BITS:
        for (Py_ssize_t i = 0; i < length; i++)
            hash[i] = mix_int(hash[i], values[(offset + i) >> 3] >> ((offset + i) & 7) & 1);
        break;
    default:
        known = 0;
    }
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&hashes);
    if (!known) {
        PyErr_Format(PyExc_ValueError, "a column of layout %d has no hash", layout);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* hash_last(hashes): makes them final. */
static PyObject *hash_last(PyObject *module, PyObject *argument)
{
    Py_buffer hashes;
    if (PyObject_GetBuffer(argument, &hashes, PyBUF_WRITABLE) < 0)
        return NULL;
    uint64_t *hash = hashes.buf;
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < hashes.len / 8; i++)
        hash[i] = mix_last(hash[i]);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&hashes);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"hash_column", hash_column, METH_VARARGS, "Mixes a column into hashes."},
    {"hash_last", hash_last, METH_O, "Makes hashes final."},
    {"sizes_of_codes", sizes_of_codes, METH_VARARGS, "Finds where the texts of codes belong."},
    {"texts_of_codes", texts_of_codes, METH_VARARGS, "Copies the texts of codes."},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module)
{
    PyObject *type = table_type(module);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Table", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_types}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_look",
    .m_doc = "Looks up keys in mapped tables.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__look(void)
{
    return PyModuleDef_Init(&definition);
}
