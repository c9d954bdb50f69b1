/* The hot loop of writing in C: `encode_usual` for batch.py, and the properties of a single send. It stops in front of
   the first message that is not usual, as `decode_usual` does, and Python's code takes that one.

   No code of Python's runs while borrowed references are held: nothing here makes an object that the garbage collector
   counts, and fields are of exact types, or are not looked at. */

#include "_fast.h"

#include <stdint.h>
#include <string.h>

enum {
    MEMBER_HEAD = 20,
    MAX_PROPERTIES_BYTES = 32000,
    ID_DIGITS = 32,
    COUNTED_DIGITS = 12, /* of a ConsecutiveIds */
};

static inline void
write_u32(char *at, uint32_t value)
{
    at[0] = (char)(value >> 24);
    at[1] = (char)(value >> 16);
    at[2] = (char)(value >> 8);
    at[3] = (char)value;
}

/* ---- a bytes object that grows: what was written is the answer, and is not copied ------------------------------- */

typedef struct {
    PyObject *bytes; /* NULL: nothing yet, or no memory left */
    char *start;
    Py_ssize_t used;
    Py_ssize_t allocated;
} Buffer;

/* The functions below return 0 when they cannot: nothing that is usual, or no memory, which leaves an exception. */

static int
allocate(Buffer *out, Py_ssize_t size)
{
    if (out->bytes == NULL) {
        out->bytes = PyBytes_FromStringAndSize(NULL, size);
    } else {
        _PyBytes_Resize(&out->bytes, size); /* NULL afterwards, if it failed */
    }
    if (out->bytes == NULL) {
        return 0;
    }
    out->start = PyBytes_AS_STRING(out->bytes);
    out->allocated = size;
    return 1;
}

static int
reserve(Buffer *out, Py_ssize_t more)
{
    if (more <= out->allocated - out->used) {
        return 1;
    }
    return more <= PY_SSIZE_T_MAX / 4 - out->used && allocate(out, 2 * (out->used + more));
}

static int
append(Buffer *out, const char *bytes, Py_ssize_t size)
{
    if (!reserve(out, size)) {
        return 0;
    }
    memcpy(out->start + out->used, bytes, (size_t)size);
    out->used += size;
    return 1;
}

#define APPEND_LITERAL(out, text) append(out, text, sizeof(text) - 1)

/* ---- properties -------------------------------------------------------------------------------------------------- */

/* A name or a value: text, not empty, UTF-8, without the separators. */
static int
append_text(Buffer *out, PyObject *text)
{
    if (!PyUnicode_CheckExact(text)) {
        return 0;
    }
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        PyErr_Clear();
        return 0;
    }
    if (size == 0 || !reserve(out, size)) {
        return 0;
    }
    char *to = out->start + out->used;
    int separators = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        separators |= (bytes[i] == 1) | (bytes[i] == 2);
        to[i] = bytes[i];
    }
    out->used += size;
    return !separators;
}

static int
append_key(Buffer *out, PyObject *key)
{
    if (!append_text(out, key)) {
        return 0;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(key);
    int kind = PyUnicode_KIND(key);
    const void *characters = PyUnicode_DATA(key);
    for (Py_ssize_t i = 0; i < length; i++) {
        if (Py_UNICODE_ISSPACE(PyUnicode_READ(kind, characters, i))) {
            return 0;
        }
    }
    return 1;
}

/* Properties that are set by users, of which RocketMQ keeps some names for itself. */
static int
append_properties(const State *state, Buffer *out, PyObject *properties)
{
    if (!PyDict_CheckExact(properties)) {
        if (properties != Py_None && PyObject_Size(properties) != 0) {
            PyErr_Clear();
            return 0;
        }
        return 1;
    }
    PyObject *name, *value;
    Py_ssize_t index = 0;
    while (PyDict_Next(properties, &index, &name, &value)) {
        if (!append_text(out, name) || !APPEND_LITERAL(out, "\x01") || !append_text(out, value)
            || !APPEND_LITERAL(out, "\x02")) {
            return 0;
        }
        int reserved = PySet_Contains(state->reserved_names, name);
        if (reserved == 0) {
            reserved = (int)PyUnicode_Tailmatch(name, state->transient_prefix, 0, PY_SSIZE_T_MAX, -1);
        }
        if (reserved != 0) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* A sequence of them; or one text whose last digits count up, so that no text is made for the others. */
typedef struct {
    PyObject *const *items; /* NULL: they count up */
    char text[ID_DIGITS];
    uint64_t first;
} Ids;

static const char hexadecimal[] = "0123456789ABCDEF";

/* 0: not such a text. */
static int
count_up_from(Ids *ids, PyObject *first)
{
    if (!PyUnicode_IS_COMPACT_ASCII(first) || PyUnicode_GET_LENGTH(first) != ID_DIGITS) {
        return 0;
    }
    ids->first = 0;
    memcpy(ids->text, PyUnicode_1BYTE_DATA(first), ID_DIGITS);
    for (int i = 0; i < ID_DIGITS; i++) {
        const char *digit = memchr(hexadecimal, ids->text[i], sizeof hexadecimal - 1);
        if (digit == NULL) {
            return 0;
        }
        if (i >= ID_DIGITS - COUNTED_DIGITS) {
            ids->first = ids->first << 4 | (uint64_t)(digit - hexadecimal);
        }
    }
    return 1;
}

static int
append_id(Buffer *out, const Ids *ids, Py_ssize_t index)
{
    if (ids->items != NULL) {
        return append_text(out, ids->items[index]);
    }
    uint64_t number = ids->first + (uint64_t)index;
    if (number >> 4 * COUNTED_DIGITS != 0 || !append(out, ids->text, ID_DIGITS)) {
        return 0;
    }
    char *end = out->start + out->used;
    for (int i = 1; i <= COUNTED_DIGITS; i++, number >>= 4) {
        end[-i] = hexadecimal[number & 0xF];
    }
    return 1;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static int
is_usual_message(const State *state, PyObject *message)
{
    return Py_IS_TYPE(message, state->message_type) && PyTuple_GET_SIZE(message) == MESSAGE_FIELDS;
}

/* All properties of a message that has no delay, in their stored form. */
static int
append_all_properties(const State *state, Buffer *out, PyObject *message, const Ids *ids, Py_ssize_t index)
{
    PyObject *tags = PyTuple_GET_ITEM(message, MESSAGE_TAGS);
    PyObject *keys = PyTuple_GET_ITEM(message, MESSAGE_KEYS);
    PyObject *sharding_key = PyTuple_GET_ITEM(message, MESSAGE_SHARDING_KEY);
    if (!PyTuple_CheckExact(keys) || PyTuple_GET_ITEM(message, DELAY_LEVEL) != Py_None
        || PyTuple_GET_ITEM(message, DELIVER_AT_MS) != Py_None) {
        return 0;
    }
    if (!APPEND_LITERAL(out, "UNIQ_KEY\x01") || !append_id(out, ids, index) || !APPEND_LITERAL(out, "\x02")) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!(i == 0 ? APPEND_LITERAL(out, "KEYS\x01") : APPEND_LITERAL(out, " "))
            || !append_key(out, PyTuple_GET_ITEM(keys, i))) {
            return 0;
        }
    }
    if (PyTuple_GET_SIZE(keys) != 0 && !APPEND_LITERAL(out, "\x02")) {
        return 0;
    }
    if (tags != Py_None
        && (!APPEND_LITERAL(out, "TAGS\x01") || !append_text(out, tags) || !APPEND_LITERAL(out, "\x02"))) {
        return 0;
    }
    if (sharding_key != Py_None
        && (!APPEND_LITERAL(out, "__SHARDINGKEY\x01") || !append_text(out, sharding_key)
            || !APPEND_LITERAL(out, "\x02"))) {
        return 0;
    }
    return append_properties(state, out, PyTuple_GET_ITEM(message, PROPERTIES));
}

/* A message as a member of a batch: see batch.py. */
static int
append_member(const State *state, Buffer *out, PyObject *message, const Ids *ids, Py_ssize_t index, Py_ssize_t room)
{
    if (!is_usual_message(state, message)) {
        return 0;
    }
    PyObject *body = PyTuple_GET_ITEM(message, BODY);
    if (!PyBytes_CheckExact(body) || PyBytes_GET_SIZE(body) == 0 || PyBytes_GET_SIZE(body) > room) {
        return 0;
    }
    Py_ssize_t body_size = PyBytes_GET_SIZE(body);
    Py_ssize_t start = out->used;
    Py_ssize_t properties_at = start + MEMBER_HEAD + body_size + 2;
    if (!reserve(out, MEMBER_HEAD + body_size + 2)) {
        return 0;
    }
    memcpy(out->start + start + MEMBER_HEAD, PyBytes_AS_STRING(body), (size_t)body_size);
    out->used = properties_at;

    if (!append_all_properties(state, out, message, ids, index)) {
        return 0;
    }
    Py_ssize_t size = out->used - start;
    Py_ssize_t properties_size = out->used - properties_at;
    if (size > room || properties_size > MAX_PROPERTIES_BYTES) {
        return 0;
    }
    char *head = out->start + start;
    write_u32(head, (uint32_t)size);
    memset(head + 4, 0, 12); /* magic, CRC, flag */
    write_u32(head + 16, (uint32_t)body_size);
    out->start[properties_at - 2] = (char)(properties_size >> 8);
    out->start[properties_at - 1] = (char)properties_size;
    return 1;
}

/* Members up to the limits, or to the first that is not usual; returns how many. */
static Py_ssize_t
append_members(const State *state, Buffer *out, PyObject *const *messages, Py_ssize_t count, const Ids *ids,
               Py_ssize_t begin, Py_ssize_t max_bytes)
{
    for (Py_ssize_t done = 0; done < count; done++) {
        Py_ssize_t used = out->used;
        if (!append_member(state, out, messages[done], ids, begin + done, max_bytes - used)) {
            out->used = used;
            return done;
        }
        /* Most batches have members of about one size: it grows once, instead of some ten times. */
        Py_ssize_t expected = done == 0 ? Py_MIN(max_bytes, count * (out->used + 16)) : 0;
        if (expected > out->allocated && !allocate(out, expected)) {
            return 1;
        }
    }
    return count;
}

const char encode_usual_doc[] = PyDoc_STR(
"encode_usual(messages, ids, begin, max_messages, max_bytes) -> (bytes, int)\n\n"
"Encode messages from index `begin` on, each with its id, as members of a batch, up to the limits or to the first\n"
"that is not usual; return their bytes and how many they are. Ids are a sequence; or the first one, of hexadecimal\n"
"digits, if the others count up from it.");

PyObject *
encode_usual(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_Format(PyExc_TypeError, "encode_usual takes 5 arguments, not %zd", count);
        return NULL;
    }
    Py_ssize_t begin = PyLong_AsSsize_t(args[2]);
    Py_ssize_t max_messages = PyLong_AsSsize_t(args[3]);
    Py_ssize_t max_bytes = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (begin < 0 || max_bytes > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "begin or max_bytes is out of bounds");
        return NULL;
    }
    PyObject *messages = PySequence_Fast(args[0], "messages must be a sequence");
    if (messages == NULL) {
        return NULL;
    }
    PyObject *given_ids = NULL, *answer = NULL;
    Buffer out = {NULL, NULL, 0, 0};
    Ids ids = {NULL, {0}, 0};
    Py_ssize_t end = PySequence_Fast_GET_SIZE(messages), done = 0;
    if (!PyUnicode_CheckExact(args[1])) {
        given_ids = PySequence_Fast(args[1], "ids must be a sequence");
        if (given_ids == NULL) {
            goto finish;
        }
        ids.items = PySequence_Fast_ITEMS(given_ids);
        end = Py_MIN(end, PySequence_Fast_GET_SIZE(given_ids));
    } else if (!count_up_from(&ids, args[1])) {
        end = 0; /* Python writes them one by one */
    }
    if (begin < end && max_messages > 0) {
        PyObject *const *first = PySequence_Fast_ITEMS(messages) + begin;
        const State *state = PyModule_GetState(module);
        done = append_members(state, &out, first, Py_MIN(end - begin, max_messages), &ids, begin, max_bytes);
    }
    if (!PyErr_Occurred() && allocate(&out, out.used)) {
        answer = Py_BuildValue("On", out.bytes, done);
    }
finish:
    Py_XDECREF(out.bytes);
    Py_XDECREF(given_ids);
    Py_DECREF(messages);
    return answer;
}

const char usual_properties_doc[] = PyDoc_STR(
"usual_properties(message, message_id) -> str | None\n\n"
"`encode_properties` as text; None for a message, or an id, that is not usual.");

PyObject *
usual_properties(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "usual_properties takes 2 arguments, not %zd", count);
        return NULL;
    }
    const State *state = PyModule_GetState(module);
    PyObject *answer = NULL;
    Buffer out = {NULL, NULL, 0, 0};
    Ids ids = {args + 1, {0}, 0};
    if (is_usual_message(state, args[0]) && append_all_properties(state, &out, args[0], &ids, 0)
        && out.used <= MAX_PROPERTIES_BYTES) {
        answer = PyUnicode_DecodeUTF8(out.start, out.used, NULL);
    }
    Py_XDECREF(out.bytes);
    if (answer == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return answer;
}

const char is_for_topic_doc[] = PyDoc_STR(
"is_for_topic(messages, topic) -> bool\n\n"
"Whether these are messages, and each names this topic or none. False also if one of them is not usual.");

PyObject *
is_for_topic(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyUnicode_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "is_for_topic takes messages and a text");
        return NULL;
    }
    PyObject *messages = PySequence_Fast(args[0], "messages must be a sequence");
    if (messages == NULL) {
        return NULL;
    }
    const State *state = PyModule_GetState(module);
    int fits = 1;
    for (Py_ssize_t i = 0; fits && i < PySequence_Fast_GET_SIZE(messages); i++) {
        PyObject *message = PySequence_Fast_GET_ITEM(messages, i);
        if (!is_usual_message(state, message)) {
            fits = 0;
            break;
        }
        PyObject *topic = PyTuple_GET_ITEM(message, TOPIC);
        fits = topic == Py_None || topic == args[1]
            || (PyUnicode_CheckExact(topic) && PyUnicode_Compare(topic, args[1]) == 0);
    }
    Py_DECREF(messages);
    return PyBool_FromLong(fits);
}
