/* The type Table: rows by key, from mapped memory to Python's values. */

#include "_look_find.h"
#include <structmember.h>

/* ---- keys ----------------------------------------------------------------------------------------------------------*/

static int take_part(Wanted *wanted, int place, const Column *column, PyObject *value)
{
    if (value == Py_None)
        return MISSING;
    switch (column->layout) {
    case TEXTS:
        if (!PyUnicode_Check(value))
            return WRONG;
        wanted->parts[place].at = PyUnicode_AsUTF8AndSize(value, &wanted->parts[place].size);
        if (wanted->parts[place].at == NULL) { /* a lone surrogate: no text of a table has one */
            PyErr_Clear();
            return MISSING;
        }
        break;
    case BYTES:
    case FIXED:
        if (!PyBytes_Check(value))
            return WRONG;
        wanted->parts[place].at = PyBytes_AS_STRING(value);
        wanted->parts[place].size = PyBytes_GET_SIZE(value);
        if (column->layout == FIXED && wanted->parts[place].size != column->size)
            return MISSING;
        break;
    case BITS:
        if (!PyBool_Check(value))
            return WRONG;
        wanted->parts[place].number = value == Py_True;
        break;
    default: {
        int overflow = 0;
        if (PyBool_Check(value) || !PyLong_Check(value))
            return WRONG;
        wanted->parts[place].number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (column->layout == UNSIGNED) {
            if (overflow > 0) { /* the upper half of 64 bits */
                unsigned long long large = PyLong_AsUnsignedLongLong(value);
                if (large == (unsigned long long)-1 && PyErr_Occurred()) {
                    PyErr_Clear();
                    return MISSING;
                }
                wanted->parts[place].number = (int64_t)large;
            } else if (overflow < 0 || wanted->parts[place].number < 0)
                return MISSING; /* a negative number has the word of a large one */
        } else if (overflow)
            return MISSING;
    }
    }
    return 0;
}

static void take_key(const Table *table, Wanted *wanted, PyObject *key)
{
    uint64_t hash = table->seed;
    wanted->state = 0;
    if (table->key_count > 1 && !(PyTuple_Check(key) && PyTuple_GET_SIZE(key) == table->key_count)) {
        wanted->state = key == Py_None ? MISSING : WRONG;
        return;
    }
    for (int i = 0; i < table->key_count; i++) {
        const Column *column = &table->keys[i];
        int state = take_part(wanted, i, column, table->key_count > 1 ? PyTuple_GET_ITEM(key, i) : key);
        if (state == WRONG || (state == MISSING && wanted->state == 0))
            wanted->state = state;
        if (wanted->state != 0)
            continue;
        if (column->layout == TEXTS || column->layout == BYTES || column->layout == FIXED)
            hash = mix_bytes(hash, (const uint8_t *)wanted->parts[i].at, (size_t)wanted->parts[i].size);
        else
            hash = mix_int(hash, wanted->parts[i].number);
    }
    wanted->hash = mix_last(hash);
}

/* ---- values --------------------------------------------------------------------------------------------------------*/

static PyObject *converted(const Column *column, PyObject *value)
{
    if (column->extra == NULL || value == NULL)
        return value;
    PyObject *found = PyObject_CallOneArg(column->extra, value);
    Py_DECREF(value);
    return found;
}

static PyObject *value_at(const Column *column, int part, int64_t row)
{
    const Piece *piece = &column->pieces[part];
    if (column->layout == OTHERS) /* the callable knows the nulls, too */
        return PyObject_CallFunction(column->extra, "iL", part, (long long)row);
    if (is_null(piece, row))
        Py_RETURN_NONE;
    switch (column->layout) {
    case BITS:
        return PyBool_FromLong(piece->values[row >> 3] >> (row & 7) & 1);
    case INTS:
        return converted(column, PyLong_FromLongLong(int_at(piece->values, column->size, row)));
    case UNSIGNED:
        return PyLong_FromUnsignedLongLong(unsigned_at(piece->values, column->size, row));
    case FLOATS:
        return PyFloat_FromDouble(
            column->size == 4 ? ((const float *)piece->values)[row] : ((const double *)piece->values)[row]);
    case TEXTS: {
        int32_t start = ((const int32_t *)piece->values)[row];
        return PyUnicode_DecodeUTF8(
            (const char *)piece->data + start, ((const int32_t *)piece->values)[row + 1] - start, NULL);
    }
    case BYTES: {
        int32_t start = ((const int32_t *)piece->values)[row];
        return PyBytes_FromStringAndSize(
            (const char *)piece->data + start, ((const int32_t *)piece->values)[row + 1] - start);
    }
    case FIXED:
        return converted(column, PyBytes_FromStringAndSize((const char *)piece->values + row * column->size, column->size));
    default: { /* CODES */
        int64_t code = int_at(piece->values, column->size, row);
        if (code < 0 || code >= PyList_GET_SIZE(column->extra)) {
            PyErr_SetString(PyExc_ValueError, "a code of the table has no value");
            return NULL;
        }
        return Py_NewRef(PyList_GET_ITEM(column->extra, code));
    }
    }
}

static PyObject *row_at(const Table *table, int part, int64_t row)
{
    PyObject *found = PyTuple_New(table->column_count);
    for (int k = 0; found != NULL && k < table->column_count; k++) {
        PyObject *value = value_at(&table->columns[k], part, row);
        if (value == NULL)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, k, value);
    }
    if (found != NULL && table->is_flat)
        PyObject_GC_UnTrack(found); /* nothing in it refers to others: the garbage collector need not see it */
    return found;
}

/* A row; with `many`, the list of all of them. None: there is none. NotImplemented: the key has another type. */
static PyObject *found_rows(const Table *table, const Wanted *wanted, int many)
{
    if (wanted->state == WRONG)
        return Py_NewRef(Py_NotImplemented);
    if (wanted->state == MISSING)
        Py_RETURN_NONE;
    int part = part_of(table, wanted->hash);
    int64_t base = table->firsts[part];
    if (!many)
        return row_at(table, part, wanted->first - base);
    PyObject *rows = PyList_New(wanted->last - wanted->first);
    for (int64_t row = wanted->first; rows != NULL && row < wanted->last; row++) {
        PyObject *one = row_at(table, part, row - base);
        if (one == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, row - wanted->first, one);
    }
    return rows;
}

/* ---- methods -------------------------------------------------------------------------------------------------------*/

static int times_of(const Table *table, PyObject *given, Py_ssize_t count, int64_t **found)
{
    *found = NULL;
    if (given == Py_None) {
        if (table->has_times) {
            PyErr_SetString(PyExc_ValueError, "the table has rows by time: a look-up needs one");
            return -1;
        }
        return 0;
    }
    if (!table->has_times || !PyList_Check(given) || PyList_GET_SIZE(given) != count) {
        PyErr_SetString(PyExc_ValueError, "times is a list as long as the keys, of a table with rows by time");
        return -1;
    }
    int64_t *times = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *times);
    if (times == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        times[i] = PyLong_AsLongLong(PyList_GET_ITEM(given, i));
        if (times[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(times);
            return -1;
        }
    }
    *found = times;
    return 0;
}

/* get(keys, times, many): what `found_rows` gives, for each key of a list. */
static PyObject *table_get(Table *table, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "get takes a list of keys, times or None, and whether all rows are wanted");
        return NULL;
    }
    PyObject *keys = args[0];
    int many = PyObject_IsTrue(args[2]);
    Py_ssize_t count = PyList_GET_SIZE(keys);
    int64_t *times;
    if (many < 0 || times_of(table, args[1], count, &times) < 0)
        return NULL;
    PyObject *found = PyList_New(count);
    Wanted wanted[BLOCK];
    for (Py_ssize_t start = 0; found != NULL && start < count; start += BLOCK) {
        int size = count - start < BLOCK ? (int)(count - start) : BLOCK;
        /* The list could lose its keys to another thread while a converter runs: each block holds its own. */
        PyObject *held[BLOCK];
        if (PyList_GET_SIZE(keys) < start + size) {
            PyErr_SetString(PyExc_RuntimeError, "the keys changed during the look-up");
            Py_CLEAR(found);
            break;
        }
        for (int i = 0; i < size; i++) {
            held[i] = Py_NewRef(PyList_GET_ITEM(keys, start + i));
            take_key(table, &wanted[i], held[i]);
        }
        find(table, wanted, size, times == NULL ? NULL : times + start, table->column_count);
        for (int i = 0; i < size && found != NULL; i++) {
            PyObject *one = found_rows(table, &wanted[i], many);
            if (one == NULL)
                Py_CLEAR(found);
            else
                PyList_SET_ITEM(found, start + i, one);
        }
        for (int i = 0; i < size; i++)
            Py_DECREF(held[i]);
    }
    PyMem_Free(times);
    return found;
}

/* get_one(key, time): what `found_rows` gives for one key, all of its rows if there is no time. */
static PyObject *table_get_one(Table *table, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "get_one takes a key, a time or None, and whether all rows are wanted");
        return NULL;
    }
    int64_t time = 0;
    int many = PyObject_IsTrue(args[2]);
    if (many < 0)
        return NULL;
    if ((args[1] != Py_None) != table->has_times) {
        PyErr_SetString(PyExc_ValueError, "a table with rows by time needs a time, and another one takes none");
        return NULL;
    }
    if (table->has_times && (time = PyLong_AsLongLong(args[1])) == -1 && PyErr_Occurred())
        return NULL;
    Wanted wanted;
    take_key(table, &wanted, args[0]);
    find_one(table, &wanted, table->has_times ? &time : NULL);
    return found_rows(table, &wanted, many);
}

static void free_column(Column *column)
{
    Py_CLEAR(column->extra);
    PyMem_Free(column->pieces);
    column->pieces = NULL;
}

static int table_traverse(Table *table, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(table));
    Py_VISIT(table->owner);
    for (int i = 0; i < table->column_count; i++)
        Py_VISIT(table->columns[i].extra);
    return 0;
}

static int table_clear(Table *table)
{
    for (int i = 0; i < MAX_KEYS; i++)
        free_column(&table->keys[i]);
    for (int i = 0; i < table->column_count; i++)
        free_column(&table->columns[i]);
    table->column_count = 0;
    free_column(&table->times[0]);
    free_column(&table->times[1]);
    Py_CLEAR(table->owner);
    return 0;
}

static void table_free(Table *table)
{
    PyTypeObject *type = Py_TYPE(table);
    PyObject_GC_UnTrack(table);
    table_clear(table);
    PyMem_Free(table->columns);
    PyMem_Free(table->firsts);
    type->tp_free(table);
    Py_DECREF(type);
}

/* Takes (layout, size, extra, [(validity, values, data) of each part]). */
static int make_column(Column *column, PyObject *given, int parts)
{
    PyObject *extra, *pieces;
    if (!PyArg_ParseTuple(given, "iiOO!", &column->layout, &column->size, &extra, &PyList_Type, &pieces))
        return -1;
    if (PyList_GET_SIZE(pieces) != parts || (column->layout == CODES && !PyList_Check(extra))
        || (column->layout == OTHERS && !PyCallable_Check(extra))) {
        PyErr_SetString(PyExc_ValueError, "a column does not fit the table");
        return -1;
    }
    column->extra = extra == Py_None ? NULL : Py_NewRef(extra);
    column->pieces = PyMem_Calloc((size_t)parts, sizeof *column->pieces);
    if (column->pieces == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < parts; i++) {
        unsigned long long validity, values, data;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(pieces, i), "KKK", &validity, &values, &data))
            return -1;
        column->pieces[i] = (Piece){(const uint8_t *)(uintptr_t)validity, (const uint8_t *)(uintptr_t)values,
                                    (const uint8_t *)(uintptr_t)data};
    }
    return 0;
}

/* Table(owner, seed, bucket_bits, part_bits, starts, prints, firsts, keys, columns, times) */
static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *owner, *firsts, *keys, *columns, *times;
    unsigned long long seed, starts, prints;
    int bucket_bits, part_bits;
    if (!PyArg_ParseTuple(args, "OKiiKKO!O!O!O!", &owner, &seed, &bucket_bits, &part_bits, &starts, &prints,
                          &PyList_Type, &firsts, &PyList_Type, &keys, &PyList_Type, &columns, &PyList_Type, &times))
        return NULL;
    if (bucket_bits < part_bits || bucket_bits > 32 || part_bits < 0 || part_bits > 16
        || PyList_GET_SIZE(firsts) != (1 << part_bits) + 1 || PyList_GET_SIZE(keys) < 1
        || PyList_GET_SIZE(keys) > MAX_KEYS || (PyList_GET_SIZE(times) != 0 && PyList_GET_SIZE(times) != 2)) {
        PyErr_SetString(PyExc_ValueError, "the parts of the table do not fit together");
        return NULL;
    }
    Table *table = (Table *)type->tp_alloc(type, 0);
    if (table == NULL)
        return NULL;
    int parts = 1 << part_bits;
    table->owner = Py_NewRef(owner);
    table->seed = seed;
    table->bucket_bits = bucket_bits;
    table->part_bits = part_bits;
    table->starts = (const uint32_t *)(uintptr_t)starts;
    table->prints = (const uint32_t *)(uintptr_t)prints;
    table->key_count = (int)PyList_GET_SIZE(keys);
    table->firsts = PyMem_Calloc((size_t)parts + 1, sizeof *table->firsts);
    table->columns = PyMem_Calloc((size_t)PyList_GET_SIZE(columns) + 1, sizeof *table->columns);
    if (table->firsts == NULL || table->columns == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (int i = 0; i <= parts; i++)
        table->firsts[i] = PyLong_AsLongLong(PyList_GET_ITEM(firsts, i));
    if (PyErr_Occurred())
        goto failed;
    for (int i = 0; i < table->key_count; i++)
        if (make_column(&table->keys[i], PyList_GET_ITEM(keys, i), parts) < 0)
            goto failed;
    table->column_count = (int)PyList_GET_SIZE(columns);
    for (int i = 0; i < table->column_count; i++)
        if (make_column(&table->columns[i], PyList_GET_ITEM(columns, i), parts) < 0)
            goto failed;
    table->is_flat = table->column_count > 0; /* the empty tuple is shared */
    for (int i = 0; i < table->column_count; i++)
        table->is_flat &= table->columns[i].layout != OTHERS;
    table->has_times = PyList_GET_SIZE(times) == 2;
    for (int i = 0; table->has_times && i < 2; i++)
        if (make_column(&table->times[i], PyList_GET_ITEM(times, i), parts) < 0)
            goto failed;
    return (PyObject *)table;
failed:
    Py_DECREF(table);
    return NULL;
}

static PyMethodDef methods[] = {
    {"get", (PyCFunction)(void (*)(void))table_get, METH_FASTCALL, "Looks up a list of keys."},
    {"get_one", (PyCFunction)(void (*)(void))table_get_one, METH_FASTCALL, "Looks up one key."},
    {"places_of", (PyCFunction)table_places_of, METH_VARARGS, "Looks up columns of keys."},
    {"values_of", (PyCFunction)table_values_of, METH_VARARGS, "Copies the values of rows."},
    {"texts_of", (PyCFunction)table_texts_of, METH_VARARGS, "Copies the texts of rows."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot type_slots[] = {
    {Py_tp_new, table_new},         {Py_tp_dealloc, table_free}, {Py_tp_traverse, table_traverse},
    {Py_tp_clear, table_clear},     {Py_tp_methods, methods},    {0, NULL},
};
static PyType_Spec type_spec = {
    .name = "rmqio.enrich.table._look.Table",
    .basicsize = sizeof(Table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = type_slots,
};

PyObject *table_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &type_spec, NULL);
}
