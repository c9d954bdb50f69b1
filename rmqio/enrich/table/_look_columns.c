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

/* Takes a key, and its hash if that is known already. */
static inline void take_key_at(const Table *table, Wanted *wanted, const Given *given, int64_t place,
                               const uint64_t *known)
{
    uint64_t hash = table->seed;
    wanted->state = 0;
    for (int i = 0; i < table->key_count; i++) {
        const Piece *piece = &given[i].piece;
        int64_t row = given[i].offset + place;
        if (is_null(piece, row)) {
            wanted->state = MISSING;
            wanted->hash = 0;
            return;
        }
        switch (given[i].layout) {
        case TEXTS:
        case BYTES: {
            const int32_t *offsets = (const int32_t *)piece->values + row;
            wanted->parts[i].at = (const char *)piece->data + offsets[0];
            wanted->parts[i].size = offsets[1] - offsets[0];
            break;
        }
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
        if (known != NULL) {
            if (given[i].layout == TEXTS || given[i].layout == BYTES)
                fetch_text((const uint8_t *)wanted->parts[i].at, (int32_t)wanted->parts[i].size);
            continue;
        }
        if (given[i].layout == TEXTS || given[i].layout == BYTES || given[i].layout == FIXED)
            hash = mix_bytes(hash, (const uint8_t *)wanted->parts[i].at, (size_t)wanted->parts[i].size);
        else
            hash = mix_int(hash, wanted->parts[i].number);
    }
    wanted->hash = known != NULL ? *known : mix_last(hash);
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

#define RING 64 /* keys that are under way: at least 4 * LAG + 1 */

static void find_places(const Table *table, const Given *given, Py_ssize_t count, const int32_t *order,
                        const uint64_t *hashes, int64_t *places)
{
    Wanted ring[RING];
    for (Py_ssize_t step = 0; step < count + 4 * LAG; step++) {
        if (step < count) {
            Wanted *next = &ring[step % RING];
            if (order == NULL)
                take_key_at(table, next, given, step, NULL);
            else
                take_key_at(table, next, given, order[step], hashes + order[step]);
            find_bucket(table, next);
        }
        if (step >= LAG && step < count + LAG)
            find_prints(table, &ring[(step - LAG) % RING]);
        if (step >= 2 * LAG && step < count + 2 * LAG)
            find_row(table, &ring[(step - 2 * LAG) % RING], 0); /* each column asks for its own memory */
        if (step >= 3 * LAG && step < count + 3 * LAG)
            find_data(table, &ring[(step - 3 * LAG) % RING], 0);
        if (step >= 4 * LAG) {
            Wanted *last = &ring[(step - 4 * LAG) % RING];
            find_last(table, last, NULL);
            places[at_step(order, step - 4 * LAG)] = last->state == 0 ? place_of(table, last) : -1;
        }
    }
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
    if (order != NULL) {
        Wanted wanted;
        for (Py_ssize_t i = 0; i < count; i++) {
            take_key_at(table, &wanted, given, i, NULL);
            hashes[i] = wanted.hash;
        }
        order_of(hashes, count, order);
    }
    find_places(table, given, count, order, hashes, places);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

#define AHEAD 24 /* rows whose memory is asked for before they are read */

static inline void set_bit(uint8_t *bits, Py_ssize_t place)
{
    bits[place >> 3] |= (uint8_t)(1 << (place & 7));
}

typedef struct {
    const Column *column;
    const int64_t *places;
    Py_ssize_t count;
    const int32_t *order;
} Copied;

/* Asks for the memory of a row that is copied soon. Returns where the row of this step belongs, and whether it is. */
FETCHES Py_ssize_t at_copy(const Copied *copied, Py_ssize_t step, int64_t *row, const Piece **piece)
{
    if (step + AHEAD < copied->count) {
        int64_t next = copied->places[at_step(copied->order, step + AHEAD)];
        if (next >= 0)
            fetch(copied->column, part_in(next), row_in(next));
    }
    Py_ssize_t i = at_step(copied->order, step);
    int64_t place = copied->places[i];
    *row = row_in(place);
    *piece = place < 0 ? NULL : &copied->column->pieces[part_in(place)];
    if (*piece != NULL && is_null(*piece, *row))
        *piece = NULL;
    return i;
}

/* The compiler makes one of these for each size that it is called with. */
static inline __attribute__((always_inline)) void copy_fixed(const Copied *copied, uint8_t *values, uint8_t *validity,
                                                             const size_t size)
{
    for (Py_ssize_t step = 0; step < copied->count; step++) {
        int64_t row;
        const Piece *piece;
        Py_ssize_t i = at_copy(copied, step, &row, &piece);
        if (piece == NULL)
            continue; /* the values are zeros before */
        set_bit(validity, i);
        memcpy(values + (size_t)i * size, piece->values + (size_t)row * size, size);
    }
}

static void copy_bits(const Copied *copied, uint8_t *values, uint8_t *validity)
{
    for (Py_ssize_t step = 0; step < copied->count; step++) {
        int64_t row;
        const Piece *piece;
        Py_ssize_t i = at_copy(copied, step, &row, &piece);
        if (piece == NULL)
            continue;
        set_bit(validity, i);
        if (piece->values[row >> 3] >> (row & 7) & 1)
            set_bit(values, i);
    }
}

/* Makes sizes offsets. Returns the sum; -1: it is too large. */
static int64_t add_up(int32_t *offsets, Py_ssize_t count)
{
    int64_t total = 0;
    offsets[0] = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if ((total += offsets[i + 1]) > INT32_MAX)
            return -1;
        offsets[i + 1] = (int32_t)total;
    }
    return total;
}

/* Also writes the places of the texts, a step after another: `copy_texts` then need not read the offsets again. */
static int64_t copy_sizes(const Copied *copied, int32_t *offsets, uint8_t *validity, const uint8_t **texts)
{
    for (Py_ssize_t step = 0; step < copied->count; step++) {
        int64_t row;
        const Piece *piece;
        Py_ssize_t i = at_copy(copied, step, &row, &piece);
        texts[step] = NULL;
        if (piece == NULL)
            continue;
        const int32_t *of_text = (const int32_t *)piece->values + row;
        set_bit(validity, i);
        offsets[i + 1] = of_text[1] - of_text[0];
        texts[step] = piece->data + of_text[0];
    }
    return add_up(offsets, copied->count);
}

/* Copies what the places have in a column: numbers, or the sizes of texts as offsets. All memory is zeros before.
   Returns the bytes of the texts; -1: they are too many. */
static int64_t copy_values(const Copied *copied, uint8_t *values, uint8_t *validity, const uint8_t **texts)
{
    switch (copied->column->layout) {
    case TEXTS:
    case BYTES:
        return copy_sizes(copied, (int32_t *)values, validity, texts);
    case BITS:
        copy_bits(copied, values, validity);
        return 0;
    default:
        switch (copied->column->size) {
        case 1:
            copy_fixed(copied, values, validity, 1);
            return 0;
        case 2:
            copy_fixed(copied, values, validity, 2);
            return 0;
        case 4:
            copy_fixed(copied, values, validity, 4);
            return 0;
        case 8:
            copy_fixed(copied, values, validity, 8);
            return 0;
        default:
            copy_fixed(copied, values, validity, (size_t)copied->column->size);
            return 0;
        }
    }
}

static void copy_texts(Py_ssize_t count, const int32_t *order, const uint8_t *const *texts, const int32_t *offsets,
                       uint8_t *data)
{
    for (Py_ssize_t step = 0; step < count; step++) {
        if (step + AHEAD < count) {
            Py_ssize_t next = at_step(order, step + AHEAD);
            fetch_text(texts[step + AHEAD], offsets[next + 1] - offsets[next]);
        }
        Py_ssize_t i = at_step(order, step);
        if (offsets[i + 1] != offsets[i])
            memcpy(data + offsets[i], texts[step], (size_t)(offsets[i + 1] - offsets[i]));
    }
}

/* values_of(column, count, places, order, values, validity, texts): see `copy_values`. `texts`: space for 8 bytes a row;
   0 if the column has no texts.
   texts_of(count, order, texts, offsets, data): see `copy_texts`. */
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
    unsigned long long places, order, values, validity, texts;
    const Column *column;
    if (!PyArg_ParseTuple(args, "inKKKKK", &place, &count, &places, &order, &values, &validity, &texts)
        || (column = column_to_copy(table, place)) == NULL)
        return NULL;
    int64_t total;
    Py_BEGIN_ALLOW_THREADS;
    const Copied copied = {column, (const int64_t *)(uintptr_t)places, count, (const int32_t *)(uintptr_t)order};
    total = copy_values(&copied, (uint8_t *)(uintptr_t)values, (uint8_t *)(uintptr_t)validity,
                        (const uint8_t **)(uintptr_t)texts);
    Py_END_ALLOW_THREADS;
    if (total < 0) {
        PyErr_SetString(PyExc_OverflowError, "the texts of a batch have over 2 GB");
        return NULL;
    }
    return PyLong_FromLongLong(total);
}

PyObject *table_texts_of(Table *table, PyObject *args)
{
    Py_ssize_t count;
    unsigned long long order, texts, offsets, data;
    if (!PyArg_ParseTuple(args, "nKKKK", &count, &order, &texts, &offsets, &data))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    copy_texts(count, (const int32_t *)(uintptr_t)order, (const uint8_t *const *)(uintptr_t)texts,
               (const int32_t *)(uintptr_t)offsets, (uint8_t *)(uintptr_t)data);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* ---- codes, whose values are texts of a dictionary -----------------------------------------------------------------*/

static inline int has_bit(const uint8_t *bits, Py_ssize_t place)
{
    return bits[place >> 3] >> (place & 7) & 1;
}

/* sizes_of_codes(count, size, codes, validity, length, texts, offsets): writes the offsets of the texts of codes, which
   are zeros before. `texts`: the offsets of the dictionary, which has `length` texts. Returns the bytes of all. */
PyObject *sizes_of_codes(PyObject *module, PyObject *args)
{
    Py_ssize_t count;
    int size;
    long long length;
    unsigned long long codes, validity, texts, offsets;
    if (!PyArg_ParseTuple(args, "niKKLKK", &count, &size, &codes, &validity, &length, &texts, &offsets))
        return NULL;
    int64_t total = 0;
    int is_whole = 1;
    Py_BEGIN_ALLOW_THREADS;
    int32_t *made = (int32_t *)(uintptr_t)offsets;
    const int32_t *of_text = (const int32_t *)(uintptr_t)texts;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!has_bit((const uint8_t *)(uintptr_t)validity, i))
            continue;
        int64_t code = int_at((const uint8_t *)(uintptr_t)codes, size, i);
        if (code < 0 || code >= length) {
            is_whole = 0;
            break;
        }
        made[i + 1] = of_text[code + 1] - of_text[code];
    }
    if (is_whole)
        total = add_up(made, count);
    Py_END_ALLOW_THREADS;
    if (!is_whole) {
        PyErr_SetString(PyExc_ValueError, "a code of the table has no value");
        return NULL;
    }
    if (total < 0) {
        PyErr_SetString(PyExc_OverflowError, "the texts of a batch have over 2 GB");
        return NULL;
    }
    return PyLong_FromLongLong(total);
}

/* texts_of_codes(count, size, codes, texts, bytes, offsets, data): writes the texts to the offsets. */
PyObject *texts_of_codes(PyObject *module, PyObject *args)
{
    Py_ssize_t count;
    int size;
    unsigned long long codes, texts, bytes, offsets, data;
    if (!PyArg_ParseTuple(args, "niKKKKK", &count, &size, &codes, &texts, &bytes, &offsets, &data))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    const int32_t *made = (const int32_t *)(uintptr_t)offsets, *of_text = (const int32_t *)(uintptr_t)texts;
    for (Py_ssize_t i = 0; i < count; i++)
        if (made[i + 1] != made[i]) {
            int64_t code = int_at((const uint8_t *)(uintptr_t)codes, size, i);
            memcpy((uint8_t *)(uintptr_t)data + made[i], (const uint8_t *)(uintptr_t)bytes + of_text[code],
                   (size_t)(made[i + 1] - made[i]));
        }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
