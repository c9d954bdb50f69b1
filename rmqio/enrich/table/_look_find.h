/* A table of rows by key in mapped memory, and how the rows of keys are found.

   A look-up goes through memory that is not in the cache: the bucket, the fingerprint, the key, each column. So some
   keys are under way at the same time, each one step behind another, and a step asks for the memory of the next one. */

#ifndef RMQIO_LOOK_FIND_H
#define RMQIO_LOOK_FIND_H

#include "_look.h"

#define MAX_KEYS 8
#define BLOCK 128 /* keys of a list that are looked up together */
#define LAG 12 /* keys between two steps */

enum { MISSING = -1, WRONG = -2 };

typedef struct {
    int layout;
    int size;
    PyObject *extra; /* of codes: the list of values; else a callable that makes a value; NULL: none */
    Piece *pieces;   /* one for each part */
} Column;

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* keeps the memory mapped */
    uint64_t seed;
    int bucket_bits;
    int part_bits;
    const uint32_t *starts;
    const uint32_t *prints;
    int64_t *firsts; /* the first row of each part; one more at the end */
    int key_count;
    Column keys[MAX_KEYS];
    int column_count;
    Column *columns;
    int is_flat; /* no value can refer to others */
    int has_times;
    Column times[2];
} Table;

/* One key that is looked for. Its texts belong to the caller's objects. */
typedef struct {
    uint64_t hash;
    int state; /* 0, MISSING or WRONG */
    int64_t first; /* rows from the first one that can be meant */
    int64_t last;
    struct {
        const char *at;
        Py_ssize_t size;
        int64_t number;
    } parts[MAX_KEYS];
} Wanted;

static inline int part_of(const Table *table, uint64_t hash)
{
    return table->part_bits ? (int)(hash >> (64 - table->part_bits)) : 0;
}

static inline uint64_t bucket_of(const Table *table, uint64_t hash)
{
    return table->bucket_bits ? hash >> (64 - table->bucket_bits) : 0;
}

static inline uint32_t print_of(const Table *table, uint64_t hash)
{
    return (uint32_t)(hash << table->bucket_bits >> 32);
}

static inline int is_key(const Table *table, const Wanted *wanted, int part, int64_t row)
{
    for (int i = 0; i < table->key_count; i++) {
        const Column *column = &table->keys[i];
        const Piece *piece = &column->pieces[part];
        switch (column->layout) {
        case TEXTS:
        case BYTES: {
            int32_t start = ((const int32_t *)piece->values)[row];
            Py_ssize_t size = ((const int32_t *)piece->values)[row + 1] - start;
            if (size != wanted->parts[i].size
                || !is_same(piece->data + start, (const uint8_t *)wanted->parts[i].at, (size_t)size))
                return 0;
            break;
        }
        case FIXED:
            if (!is_same(piece->values + row * column->size, (const uint8_t *)wanted->parts[i].at, (size_t)column->size))
                return 0;
            break;
        case BITS:
            if ((piece->values[row >> 3] >> (row & 7) & 1) != wanted->parts[i].number)
                return 0;
            break;
        case UNSIGNED:
            if (unsigned_at(piece->values, column->size, row) != (uint64_t)wanted->parts[i].number)
                return 0;
            break;
        default:
            if (int_at(piece->values, column->size, row) != wanted->parts[i].number)
                return 0;
        }
    }
    return 1;
}

/* Narrows the rows of the bucket to those with the fingerprint, which are in order there. */
static inline void narrow(const Table *table, Wanted *wanted)
{
    uint32_t print = print_of(table, wanted->hash);
    int64_t low = wanted->first, high = wanted->last;
    if (high - low > 16) {
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (table->prints[middle] < print)
                low = middle + 1;
            else
                high = middle;
        }
    } else {
        while (low < high && table->prints[low] < print)
            low++;
    }
    wanted->first = low;
    if (low == wanted->last || table->prints[low] != print)
        wanted->state = MISSING;
}

/* Finds the rows of the key. They stand together. */
static inline void verify(const Table *table, Wanted *wanted)
{
    int part = part_of(table, wanted->hash);
    int64_t base = table->firsts[part], row = wanted->first;
    uint32_t print = print_of(table, wanted->hash);
    while (row < wanted->last && table->prints[row] == print && !is_key(table, wanted, part, row - base))
        row++;
    int64_t end = row;
    while (end < wanted->last && table->prints[end] == print && is_key(table, wanted, part, end - base))
        end++;
    wanted->first = row;
    wanted->last = end;
    if (row == end)
        wanted->state = MISSING;
}

/* Takes the one row that is valid at a time. */
static inline void at_time(const Table *table, Wanted *wanted, int64_t time)
{
    int part = part_of(table, wanted->hash);
    const int64_t *from = (const int64_t *)table->times[0].pieces[part].values - table->firsts[part];
    const int64_t *to = (const int64_t *)table->times[1].pieces[part].values - table->firsts[part];
    int64_t low = wanted->first, high = wanted->last;
    while (low < high) { /* the first row that begins later */
        int64_t middle = low + (high - low) / 2;
        if (from[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == wanted->first || to[low - 1] <= time) {
        wanted->state = MISSING;
        return;
    }
    wanted->first = low - 1;
    wanted->last = low;
}

/* GCC removes a call of a function that does nothing but prefetch, since it has no effect: so these are no calls. */
#define FETCHES static inline __attribute__((always_inline))

FETCHES void fetch(const Column *column, int part, int64_t row)
{
    const Piece *piece = &column->pieces[part];
    switch (column->layout) {
    case TEXTS:
    case BYTES:
        __builtin_prefetch((const int32_t *)piece->values + row);
        break;
    case BITS:
        __builtin_prefetch(piece->values + (row >> 3));
        break;
    case OTHERS:
        break;
    default:
        __builtin_prefetch(piece->values + row * column->size);
    }
}

FETCHES void fetch_text(const uint8_t *text, int32_t size)
{
    __builtin_prefetch(text);
    __builtin_prefetch(text + size - (size > 0)); /* often in the next line */
}

FETCHES void fetch_data(const Column *column, int part, int64_t row)
{
    if (column->layout == TEXTS || column->layout == BYTES) {
        const Piece *piece = &column->pieces[part];
        const int32_t *offsets = (const int32_t *)piece->values + row;
        fetch_text(piece->data + offsets[0], offsets[1] - offsets[0]);
    }
}

/* The steps of a look-up. Each asks for the memory that the next one reads. */

FETCHES void find_bucket(const Table *table, const Wanted *wanted)
{
    if (wanted->state == 0)
        __builtin_prefetch(table->starts + bucket_of(table, wanted->hash));
}

FETCHES void find_prints(const Table *table, Wanted *wanted)
{
    if (wanted->state != 0)
        return;
    uint64_t bucket = bucket_of(table, wanted->hash);
    wanted->first = table->starts[bucket];
    wanted->last = table->starts[bucket + 1];
    __builtin_prefetch(table->prints + wanted->first);
}

/* `columns`: how many columns of values are read after the look-up. */
FETCHES void find_row(const Table *table, Wanted *wanted, int columns)
{
    if (wanted->state != 0)
        return;
    narrow(table, wanted);
    if (wanted->state != 0)
        return;
    int part = part_of(table, wanted->hash);
    int64_t row = wanted->first - table->firsts[part];
    for (int k = 0; k < table->key_count; k++)
        fetch(&table->keys[k], part, row);
    for (int k = 0; k < columns; k++)
        fetch(&table->columns[k], part, row);
}

FETCHES void find_data(const Table *table, const Wanted *wanted, int columns)
{
    if (wanted->state != 0)
        return;
    int part = part_of(table, wanted->hash);
    int64_t row = wanted->first - table->firsts[part];
    for (int k = 0; k < table->key_count; k++)
        fetch_data(&table->keys[k], part, row);
    for (int k = 0; k < columns; k++)
        fetch_data(&table->columns[k], part, row);
}

static inline void find_last(const Table *table, Wanted *wanted, const int64_t *time)
{
    if (wanted->state == 0)
        verify(table, wanted);
    if (wanted->state == 0 && time != NULL)
        at_time(table, wanted, *time);
}

/* Looks up a block of keys. `times`: the time of each; NULL: none. `columns`: see `find_row`. */
static inline void find(const Table *table, Wanted *wanted, int count, const int64_t *times, int columns)
{
    for (int step = 0; step < count + 4 * LAG; step++) {
        if (step < count)
            find_bucket(table, &wanted[step]);
        if (step >= LAG && step < count + LAG)
            find_prints(table, &wanted[step - LAG]);
        if (step >= 2 * LAG && step < count + 2 * LAG)
            find_row(table, &wanted[step - 2 * LAG], columns);
        if (step >= 3 * LAG && step < count + 3 * LAG)
            find_data(table, &wanted[step - 3 * LAG], columns);
        if (step >= 4 * LAG)
            find_last(table, &wanted[step - 4 * LAG], times == NULL ? NULL : times + (step - 4 * LAG));
    }
}

static inline void find_one(const Table *table, Wanted *wanted, const int64_t *time)
{
    find_prints(table, wanted);
    find_row(table, wanted, table->column_count);
    find_data(table, wanted, table->column_count);
    find_last(table, wanted, time);
}

/* From columns of keys to columns of values: `_look_columns.c`. */
PyObject *table_places_of(Table *table, PyObject *args);
PyObject *table_values_of(Table *table, PyObject *args);
PyObject *table_texts_of(Table *table, PyObject *args);
PyObject *sizes_of_codes(PyObject *module, PyObject *args);
PyObject *texts_of_codes(PyObject *module, PyObject *args);

#endif
