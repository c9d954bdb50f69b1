/* What the files of rmqio.enrich.table._look share: hashes of keys, and columns of a table in mapped memory. */

#ifndef RMQIO_LOOK_H
#define RMQIO_LOOK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* ---- hashes: rmqio/enrich/table/hashing.py has the same with numpy ------------------------------------------------ */

#define MIX_WORD 0xD6E8FEB86659FD93ULL
#define MIX_LAST_1 0xFF51AFD7ED558CCDULL
#define MIX_LAST_2 0xC4CEB9FE1A85EC53ULL

static inline uint64_t mix_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * MIX_WORD;
    return hash ^ hash >> 32;
}

static inline uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* Up to 7 bytes as a word: a copy of a size that the compiler does not know is a call. */
static inline uint64_t short_word_at(const uint8_t *at, size_t size)
{
    uint32_t low, high;
    if (size >= 4) {
        memcpy(&low, at, 4);
        memcpy(&high, at + size - 4, 4);
        return low | (uint64_t)high << 8 * (size - 4);
    }
    uint64_t word = size ? at[0] : 0;
    if (size > 1)
        word |= (uint64_t)at[1] << 8;
    if (size > 2)
        word |= (uint64_t)at[2] << 16;
    return word;
}

/* The size is a word of its own: else an empty part would change nothing, and the keys ("x", "") and ("", "x") would
   have one hash, whatever the seed. */
static inline uint64_t mix_bytes(uint64_t hash, const uint8_t *at, size_t size)
{
    size_t left = size;
    hash = mix_word(hash, (uint64_t)size);
    for (; left >= 8; left -= 8, at += 8)
        hash = mix_word(hash, word_at(at));
    if (left)
        hash = mix_word(hash, size < 8 ? short_word_at(at, left) : word_at(at + left - 8) >> 8 * (8 - left));
    return hash;
}

static inline int is_same(const uint8_t *one, const uint8_t *other, size_t size)
{
    if (size < 8)
        return short_word_at(one, size) == short_word_at(other, size);
    for (size_t at = 0; at + 8 < size; at += 8)
        if (word_at(one + at) != word_at(other + at))
            return 0;
    return word_at(one + size - 8) == word_at(other + size - 8);
}

static inline uint64_t mix_int(uint64_t hash, int64_t value)
{
    return mix_word(hash, (uint64_t)value);
}

static inline uint64_t mix_last(uint64_t hash)
{
    hash *= MIX_LAST_1;
    hash ^= hash >> 29;
    hash *= MIX_LAST_2;
    return hash ^ hash >> 32;
}

/* ---- columns -------------------------------------------------------------------------------------------------------*/

/* How the values of a column lie in memory: the codes of `Layout` in rmqio/enrich/table/kinds.py. */
enum { BITS, INTS, UNSIGNED, FLOATS, TEXTS, BYTES, FIXED, CODES, OTHERS };

/* One column in one part of the table. */
typedef struct {
    const uint8_t *validity; /* NULL: no value is null */
    const uint8_t *values;   /* of texts and bytes: the offsets */
    const uint8_t *data;
} Piece;

static inline int is_null(const Piece *piece, int64_t row)
{
    return piece->validity != NULL && !(piece->validity[row >> 3] >> (row & 7) & 1);
}

static inline int64_t int_at(const uint8_t *values, int size, int64_t row)
{
    switch (size) {
    case 1:
        return ((const int8_t *)values)[row];
    case 2:
        return ((const int16_t *)values)[row];
    case 4:
        return ((const int32_t *)values)[row];
    default:
        return ((const int64_t *)values)[row];
    }
}

static inline uint64_t unsigned_at(const uint8_t *values, int size, int64_t row)
{
    switch (size) {
    case 1:
        return values[row];
    case 2:
        return ((const uint16_t *)values)[row];
    case 4:
        return ((const uint32_t *)values)[row];
    default:
        return ((const uint64_t *)values)[row];
    }
}

PyObject *table_type(PyObject *module);

#endif
