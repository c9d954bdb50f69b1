/* Ids that depend only on places: BLAKE2b (RFC 7693) of short texts, in hexadecimal digits. */

#include "_fast.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 128, DIGEST = 16, LONGEST = 4 * BLOCK, ROUNDS = 12 };

static const uint64_t IV[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

static const uint8_t SIGMA[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t turned(uint64_t value, int by)
{
    return value >> by | value << (64 - by);
}

static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

static void compress(uint64_t *state, const uint8_t *block, uint64_t bytes_so_far, int is_last)
{
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) {
        m[i] = 0;
        for (int j = 7; j >= 0; j--) {
            m[i] = m[i] << 8 | block[8 * i + j];
        }
    }
    memcpy(v, state, 8 * sizeof(uint64_t));
    memcpy(v + 8, IV, sizeof IV);
    v[12] ^= bytes_so_far;
    if (is_last) {
        v[14] = ~v[14];
    }
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *s = SIGMA[round % 10];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++) {
        state[i] ^= v[i] ^ v[i + 8];
    }
}

/* The 32 digits of a text. Behind the text there are zeros to the end of its last block. */
static void digits_of(const uint8_t *text, Py_ssize_t size, char *digits)
{
    uint64_t state[8];
    memcpy(state, IV, sizeof IV);
    state[0] ^= 0x01010000u ^ DIGEST;
    Py_ssize_t done = 0;
    for (; size - done > BLOCK; done += BLOCK) {
        compress(state, text + done, (uint64_t)(done + BLOCK), 0);
    }
    compress(state, text + done, (uint64_t)size, 1);
    for (int i = 0; i < DIGEST; i++) {
        uint8_t byte = (uint8_t)(state[i / 8] >> 8 * (i % 8));
        digits[2 * i] = "0123456789ABCDEF"[byte >> 4];
        digits[2 * i + 1] = "0123456789ABCDEF"[byte & 15];
    }
}

/* The id of one place, or NULL: without an exception for an offset that is not usual. `text` begins with the prefix. */
static PyObject *
id_of(PyObject *offset, uint8_t *text, Py_ssize_t prefix_size, const char *tail, Py_ssize_t tail_size)
{
    if (!PyLong_CheckExact(offset)) {
        return NULL;
    }
    int overflow;
    long long left = PyLong_AsLongLongAndOverflow(offset, &overflow);
    if (overflow || left < 0) {
        return NULL;
    }
    uint8_t number[20];
    int begin = sizeof number;
    do {
        number[--begin] = (uint8_t)('0' + left % 10);
        left /= 10;
    } while (left);
    Py_ssize_t size = prefix_size + (Py_ssize_t)sizeof number - begin;
    memcpy(text + prefix_size, number + begin, sizeof number - begin);
    memcpy(text + size, tail, tail_size);
    size += tail_size;
    memset(text + size, 0, LONGEST - size);
    PyObject *id = PyUnicode_New(2 * DIGEST, 127);
    if (id != NULL) {
        digits_of(text, size, (char *)PyUnicode_1BYTE_DATA(id));
    }
    return id;
}

const char usual_place_ids_doc[] = PyDoc_STR(
"usual_place_ids(prefix, offsets, tail) -> list[str] | None\n\n"
"As `batches.place_ids`: the digests of prefix, offset and tail. None: they are too long, or offsets are not usual.");

PyObject *
usual_place_ids(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "usual_place_ids takes bytes, offsets and bytes");
        return NULL;
    }
    Py_ssize_t prefix_size = PyBytes_GET_SIZE(args[0]), tail_size = PyBytes_GET_SIZE(args[2]);
    if (prefix_size > LONGEST || tail_size > LONGEST || prefix_size + 20 + tail_size > LONGEST) {
        Py_RETURN_NONE;
    }
    PyObject *offsets = PySequence_Fast(args[1], "offsets must be a sequence");
    if (offsets == NULL) {
        return NULL;
    }
    uint8_t text[LONGEST];
    memcpy(text, PyBytes_AS_STRING(args[0]), prefix_size);
    PyObject *ids = PyList_New(PySequence_Fast_GET_SIZE(offsets));
    for (Py_ssize_t i = 0; ids != NULL && i < PyList_GET_SIZE(ids); i++) {
        PyObject *offset = PySequence_Fast_GET_ITEM(offsets, i);
        PyObject *id = id_of(offset, text, prefix_size, PyBytes_AS_STRING(args[2]), tail_size);
        if (id == NULL) {
            Py_CLEAR(ids);
        } else {
            PyList_SET_ITEM(ids, i, id);
        }
    }
    Py_DECREF(offsets);
    if (ids == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return ids;
}
