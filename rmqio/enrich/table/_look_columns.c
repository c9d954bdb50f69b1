/* From columns of keys to columns of values, in Arrow's memory: without objects of Python, and without its lock. */

#include "_look_find.h"

#define ROW_BITS 40 /* of a place, which is a part and a row in it */

static inline int part_in(int64_t place)
{
    return (int)(place >> ROW_BITS);
}

static inline int64_t row_in(int64_t place)
{
    return place & (((int64_t)1 << ROW_BITS) - 1);
}

static inline int64_t place_of(const Table *table, const Wanted *wanted)
{
    int part = part_of(table, wanted->hash);
    return (int64_t)part << ROW_BITS | (wanted->first - table->firsts[part]);
}

/* A column of keys in Arrow's memory. */
typedef struct {
    int layout;
    int size;
    int64_t offset;
    Piece piece;
} Given;

static void take_key_at(const Table *table, Wanted *wanted, const Given *given, int64_t place)
{
    uint64_t hash = table->seed;
    wanted->state = 0;
    for (int i = 0; i < table->key_count; i++) {
        const Piece *piece = &given[i].piece;
        int64_t row = given[i].offset + place;
        if (is_null(piece, row)) {
            wanted->state = MISSING;
            return;
        }
        switch (given[i].layout) {
        case TEXTS:
        case BYTES:
            wanted->parts[i].at = (const char *)piece->data + ((const int32_t *)piece->values)[row];
            wanted->parts[i].size = ((const int32_t *)piece->values)[row + 1] - ((const int32_t *)piece->values)[row];
            break;
        case FIXED:
            wanted->parts[i].at = (const char *)piece->values + row * given[i].size;
            wanted->parts[i].size = given[i].size;
            break;
        case BITS:
            wanted->parts[i].number = piece->values[row >> 3] >> (row & 7) & 1;
            break;
        case UNSIGNED:
            wanted->parts[i].number = (int64_t)unsigned_at(piece->values, given[i].size, row);
            break;
        default:
            wanted->parts[i].number = int_at(piece->values, given[i].size, row);
        }
        if (given[i].layout == TEXTS || given[i].layout == BYTES || given[i].layout == FIXED)
            hash = mix_bytes(hash, (const uint8_t *)wanted->parts[i].at, (size_t)wanted->parts[i].size);
        else
            hash = mix_int(hash, wanted->parts[i].number);
    }
    wanted->hash = mix_last(hash);
}

#define ORDER_BITS 11

static inline Py_ssize_t at_step(const int32_t *order, Py_ssize_t step)
{
    return order == NULL ? step : order[step];
}

/* The order of keys in memory, roughly: rows lie in the order of hashes. Neighbours then share what translates their
   addresses, which costs more than the memory itself in a large table. */
static void order_of(const uint64_t *hashes, Py_ssize_t count, int32_t *order)
{
    int32_t starts[(1 << ORDER_BITS) + 1] = {0};
    for (Py_ssize_t i = 0; i < count; i++)
        starts[(hashes[i] >> (64 - ORDER_BITS)) + 1]++;
    for (int i = 0; i < 1 << ORDER_BITS; i++)
        starts[i + 1] += starts[i];
    for (Py_ssize_t i = 0; i < count; i++)
        order[starts[hashes[i] >> (64 - ORDER_BITS)]++] = (int32_t)i;
}

/* places_of(count, columns, out, hashes, order): writes the place of the first row of each key; -1: there is none. The
   columns are (layout, size, offset, validity, values, data) of the table's layouts. `order`: where the order of memory
   is written to, with `hashes` as space; 0: in the order of the keys. */
PyObject *table_places_of(Table *table, PyObject *args)
{
    Py_ssize_t count;
    PyObject *columns;
    unsigned long long out, space, order_at;
    if (!PyArg_ParseTuple(args, "nO!KKK", &count, &PyList_Type, &columns, &out, &space, &order_at))
        return NULL;
    int32_t *order = (int32_t *)(uintptr_t)order_at;
    uint64_t *hashes = (uint64_t *)(uintptr_t)space;
    if (PyList_GET_SIZE(columns) != table->key_count || table->has_times) {
        PyErr_SetString(PyExc_ValueError, "the columns are not those of the key, or the table has rows by time");
        return NULL;
    }
    Given given[MAX_KEYS];
    for (int i = 0; i < table->key_count; i++) {
        unsigned long long validity, values, data;
        long long offset;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(columns, i), "iiLKKK", &given[i].layout, &given[i].size, &offset,
                              &validity, &values, &data))
            return NULL;
        if (given[i].layout != table->keys[i].layout
            || (given[i].layout == FIXED && given[i].size != table->keys[i].size)) {
            PyErr_SetString(PyExc_ValueError, "a column has another layout than the key");
            return NULL;
        }
        given[i].offset = offset;
        given[i].piece = (Piece){(const uint8_t *)(uintptr_t)validity, (const uint8_t *)(uintptr_t)values,
                                 (const uint8_t *)(uintptr_t)data};
    }
    int64_t *places = (int64_t *)(uintptr_t)out;
    Py_BEGIN_ALLOW_THREADS;
    Wanted wanted[BLOCK];
    if (order != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) {
            wanted[0].hash = 0;
            take_key_at(table, &wanted[0], given, i);
            hashes[i] = wanted[0].hash;
        }
        order_of(hashes, count, order);
    }
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        int size = count - start < BLOCK ? (int)(count - start) : BLOCK;
        for (int i = 0; i < size; i++)
            take_key_at(table, &wanted[i], given, at_step(order, start + i));
        find(table, wanted, size, NULL, 0); /* each column is copied by itself, and asks for its own memory */
        for (int i = 0; i < size; i++)
            places[at_step(order, start + i)] = wanted[i].state == 0 ? place_of(table, &wanted[i]) : -1;
    }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

#define AHEAD 24 /* rows whose memory is asked for before they are read */

static inline void set_bit(uint8_t *bits, Py_ssize_t place)
{
    bits[place >> 3] |= (uint8_t)(1 << (place & 7));
}

/* Copies what the places have in a column: numbers, or the sizes of texts as offsets. The bitmaps are zeros before.
   Returns the bytes of the texts; -1: they are too many. */
static int64_t copy_values(const Column *column, const int64_t *places, Py_ssize_t count, const int32_t *order,
                           uint8_t *values, uint8_t *validity)
{
    for (Py_ssize_t step = 0; step < count; step++) {
        if (step + AHEAD < count) {
            int64_t next = places[at_step(order, step + AHEAD)];
            if (next >= 0)
                fetch(column, part_in(next), row_in(next));
        }
        Py_ssize_t i = at_step(order, step);
        const Piece *piece = &column->pieces[places[i] < 0 ? 0 : part_in(places[i])];
        int64_t row = row_in(places[i]);
        int is_there = places[i] >= 0 && !is_null(piece, row);
        if (is_there)
            set_bit(validity, i);
        if (column->layout == TEXTS || column->layout == BYTES) {
            const int32_t *offsets = (const int32_t *)piece->values + row;
            ((int32_t *)values)[i + 1] = is_there ? offsets[1] - offsets[0] : 0;
        } else if (column->layout == BITS) {
            if (is_there && piece->values[row >> 3] >> (row & 7) & 1)
                set_bit(values, i);
        } else if (is_there)
            memcpy(values + i * column->size, piece->values + row * column->size, (size_t)column->size);
        else
            memset(values + i * column->size, 0, (size_t)column->size);
    }
    if (column->layout != TEXTS && column->layout != BYTES)
        return 0;
    int32_t *offsets = (int32_t *)values;
    int64_t total = 0;
    offsets[0] = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if ((total += offsets[i + 1]) > INT32_MAX)
            return -1;
        offsets[i + 1] = (int32_t)total;
    }
    return total;
}

static void copy_texts(const Column *column, const int64_t *places, Py_ssize_t count, const int32_t *order,
                       const int32_t *offsets, uint8_t *data)
{
    for (Py_ssize_t step = 0; step < count; step++) {
        if (step + AHEAD < count) {
            int64_t next = places[at_step(order, step + AHEAD)];
            if (next >= 0)
                fetch_data(column, part_in(next), row_in(next));
        }
        Py_ssize_t i = at_step(order, step);
        if (offsets[i + 1] == offsets[i])
            continue;
        const Piece *piece = &column->pieces[part_in(places[i])];
        int32_t start = ((const int32_t *)piece->values)[row_in(places[i])];
        memcpy(data + offsets[i], piece->data + start, (size_t)(offsets[i + 1] - offsets[i]));
    }
}

/* values_of(column, count, places, order, values, validity): see `copy_values`.
   texts_of(column, count, places, order, offsets, data): see `copy_texts`. */
static const Column *column_to_copy(const Table *table, int place)
{
    if (place < 0 || place >= table->column_count || table->columns[place].layout == OTHERS) {
        PyErr_SetString(PyExc_ValueError, "there is no such column, or it cannot be copied");
        return NULL;
    }
    return &table->columns[place];
}

PyObject *table_values_of(Table *table, PyObject *args)
{
    int place;
    Py_ssize_t count;
    unsigned long long places, order, values, validity;
    const Column *column;
    if (!PyArg_ParseTuple(args, "inKKKK", &place, &count, &places, &order, &values, &validity)
        || (column = column_to_copy(table, place)) == NULL)
        return NULL;
    int64_t total;
    Py_BEGIN_ALLOW_THREADS;
    total = copy_values(column, (const int64_t *)(uintptr_t)places, count, (const int32_t *)(uintptr_t)order,
                        (uint8_t *)(uintptr_t)values, (uint8_t *)(uintptr_t)validity);
    Py_END_ALLOW_THREADS;
    if (total < 0) {
        PyErr_SetString(PyExc_OverflowError, "the texts of a batch have over 2 GB");
        return NULL;
    }
    return PyLong_FromLongLong(total);
}

PyObject *table_texts_of(Table *table, PyObject *args)
{
    int place;
    Py_ssize_t count;
    unsigned long long places, order, offsets, data;
    const Column *column;
    if (!PyArg_ParseTuple(args, "inKKKK", &place, &count, &places, &order, &offsets, &data)
        || (column = column_to_copy(table, place)) == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    copy_texts(column, (const int64_t *)(uintptr_t)places, count, (const int32_t *)(uintptr_t)order,
               (const int32_t *)(uintptr_t)offsets, (uint8_t *)(uintptr_t)data);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
