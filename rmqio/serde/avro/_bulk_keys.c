/* Keys of a map that are there twice. Of these the last one counts, as in the dict that Python makes of the map. */

#include "_bulk.h"

enum {
    FEW = 12,  /* keys that are compared with each other */
    TRIES = 8, /* places in which a key is looked for, on average: more are no accident */
};

static inline Py_ssize_t size_at(const int32_t *offsets, Py_ssize_t at)
{
    return offsets[at + 1] - offsets[at];
}

static inline int are_equal(const uint8_t *data, const int32_t *offsets, Py_ssize_t one, Py_ssize_t other)
{
    Py_ssize_t size = size_at(offsets, one);
    return size == size_at(offsets, other)
        && (size == 0 || memcmp(data + offsets[one], data + offsets[other], (size_t)size) == 0);
}

static inline uint64_t hash_at(const uint8_t *data, const int32_t *offsets, Py_ssize_t at)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (int32_t i = offsets[at]; i < offsets[at + 1]; i++)
        hash = (hash ^ data[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

int repeats_a_key(const uint8_t *data, const int32_t *offsets, Py_ssize_t begin, Py_ssize_t end)
{
    Py_ssize_t count = end - begin;
    if (count <= FEW) {
        for (Py_ssize_t one = begin + 1; one < end; one++)
            for (Py_ssize_t other = begin; other < one; other++)
                if (are_equal(data, offsets, one, other))
                    return 1;
        return 0;
    }
    size_t places = 32;
    while (places < 2 * (size_t)count)
        places *= 2;
    int32_t *table = PyMem_RawCalloc(places, sizeof(int32_t)); /* numbers of keys, from 1; 0: free */
    if (table == NULL)
        return 1;
    Py_ssize_t tries = TRIES * count;
    int found = 0;
    for (Py_ssize_t key = begin; key < end && !found; key++) {
        size_t place = hash_at(data, offsets, key) & (places - 1);
        while (table[place] != 0 && !found) {
            found = tries-- == 0 || are_equal(data, offsets, begin + table[place] - 1, key);
            place = (place + 1) & (places - 1);
        }
        if (!found)
            table[place] = (int32_t)(key - begin + 1);
    }
    PyMem_RawFree(table);
    return found;
}
