/* What the files of rmqio.serde.avro._bulk share: reading Avro's bytes. */

#ifndef RMQIO_BULK_H
#define RMQIO_BULK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* A body, from the next byte on. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Bytes;

/* At most so many levels of records, arrays, maps and unions. Python permits 200 levels, and decodes what is deeper. */
#define MAX_LEVELS 100

/* Each function returns 0, or -1 without an exception for bytes that are not usual. */

static inline int read_long(Bytes *bytes, int64_t *found)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && bytes->at < bytes->end; shift += 7) {
        uint8_t byte = *bytes->at++;
        if (shift == 63 && byte > 1)
            return -1;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *found = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return 0;
        }
    }
    return -1;
}

static inline int read_int(Bytes *bytes, int32_t *found)
{
    int64_t value;
    if (read_long(bytes, &value) < 0 || value < INT32_MIN || value > INT32_MAX)
        return -1;
    *found = (int32_t)value;
    return 0;
}

static inline int read_boolean(Bytes *bytes, int *found)
{
    if (bytes->at == bytes->end || *bytes->at > 1)
        return -1;
    *found = *bytes->at++;
    return 0;
}

static inline int read_float(Bytes *bytes, float *found)
{
    if (bytes->end - bytes->at < 4)
        return -1;
    uint32_t bits = (uint32_t)bytes->at[0] | (uint32_t)bytes->at[1] << 8 | (uint32_t)bytes->at[2] << 16
        | (uint32_t)bytes->at[3] << 24;
    memcpy(found, &bits, 4);
    bytes->at += 4;
    return 0;
}

static inline int read_double(Bytes *bytes, double *found)
{
    if (bytes->end - bytes->at < 8)
        return -1;
    uint64_t bits = 0;
    for (int i = 7; i >= 0; i--)
        bits = bits << 8 | bytes->at[i];
    memcpy(found, &bits, 8);
    bytes->at += 8;
    return 0;
}

static inline int read_fixed(Bytes *bytes, Py_ssize_t size, const uint8_t **found)
{
    if (bytes->end - bytes->at < size)
        return -1;
    *found = bytes->at;
    bytes->at += size;
    return 0;
}

static inline int read_sized(Bytes *bytes, const uint8_t **found, Py_ssize_t *size)
{
    int64_t length;
    if (read_long(bytes, &length) < 0 || length < 0 || length > bytes->end - bytes->at)
        return -1;
    *size = (Py_ssize_t)length;
    return read_fixed(bytes, *size, found);
}

/* The number of items in the next block of an array or map, each of which takes a byte at least, 0 at the end; and where
   the block ends if it says so, or NULL. */
static inline int read_block(Bytes *bytes, Py_ssize_t *count, const uint8_t **block_end)
{
    int64_t items, size;
    *block_end = NULL;
    if (read_long(bytes, &items) < 0)
        return -1;
    if (items < 0) {
        if (items == INT64_MIN || read_long(bytes, &size) < 0 || size < 0 || size > bytes->end - bytes->at)
            return -1;
        items = -items;
        *block_end = bytes->at + size;
    }
    if (items > bytes->end - bytes->at)
        return -1;
    *count = (Py_ssize_t)items;
    return 0;
}

static inline int read_index(Bytes *bytes, Py_ssize_t count, Py_ssize_t *found)
{
    int64_t index;
    if (read_long(bytes, &index) < 0 || index < 0 || index >= count)
        return -1;
    *found = (Py_ssize_t)index;
    return 0;
}

/* The types that the module has; NULL with an exception. */
PyObject *values_type(PyObject *module);
PyObject *columns_type(PyObject *module);

/* Whether keys from `begin` to before `end` are there twice, or this cannot be told at little cost: then Python decodes
   the body. A key's bytes are `data` between two `offsets`. Needs no GIL. */
int repeats_a_key(const uint8_t *data, const int32_t *offsets, Py_ssize_t begin, Py_ssize_t end);

#endif
