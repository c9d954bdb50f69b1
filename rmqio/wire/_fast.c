/* The hot loop of reading in C: `decode_usual` for stored.py; and the module, with what the other files add to it:
   _fast_encoding.c, _fast_values.c, _fast_copies.c and _fast_header.c.

   Optional (docs/architecture.md). All handle the usual message only and stop in front of the first one that is
   anything else: unusual, broken or illegal. The Python code takes that one, so what is decoded, what is refused and
   how an error reads is written down there and nowhere else. Nothing here raises for what a message holds.

   Memory: each field is read after a check of the bytes left, in 64-bit arithmetic on 32-bit sizes, which cannot
   overflow. No code of Python's runs while borrowed references are held, but for garbage collection in `decode_usual`,
   where the caller keeps every argument alive. */

#include "_fast.h"

#include <stdint.h>
#include <string.h>

/* ---- big-endian numbers ----------------------------------------------------------------------------------------- */

static inline uint32_t
read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline int32_t
read_i32(const uint8_t *at)
{
    return (int32_t)read_u32(at);
}

static inline int64_t
read_i64(const uint8_t *at)
{
    return (int64_t)((uint64_t)read_u32(at) << 32 | read_u32(at + 4));
}

/* ---- CRC-32, 16 bytes a step ------------------------------------------------------------------------------------ */

/* A call of zlib.crc32 costs 100 ns; and linking to zlib would demand its headers wherever this is compiled. */
enum { CRC_STEP = 16 };
static uint32_t crc_table[CRC_STEP][256];

static void
fill_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        }
        crc_table[0][byte] = crc;
    }
    for (int step = 1; step < CRC_STEP; step++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_table[step - 1][byte];
            crc_table[step][byte] = crc >> 8 ^ crc_table[0][crc & 0xFF];
        }
    }
}

static uint32_t
crc32_of(const uint8_t *at, int64_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= CRC_STEP; size -= CRC_STEP, at += CRC_STEP) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++) {
            next ^= crc_table[CRC_STEP - 1 - i][at[i] ^ (crc >> 8 * i & 0xFF)];
        }
        for (int i = 4; i < CRC_STEP; i++) {
            next ^= crc_table[CRC_STEP - 1 - i][at[i]];
        }
        crc = next;
    }
    for (; size > 0; size--, at++) {
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 0xFF];
    }
    return ~crc;
}

/* ---- decoding --------------------------------------------------------------------------------------------------- */

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu

enum {
    COMPRESSED = 0x1,
    BORN_HOST_V6 = 0x10,
    STORE_HOST_V6 = 0x20,
    NEED_UNWRAP = 0x40,
    INNER_BATCH = 0x80,
    UNUSUAL_FLAGS = COMPRESSED | NEED_UNWRAP | INNER_BATCH,
    BEFORE_BORN_HOST = 48,
    HEADER_SIZE = 88, /* up to the body, with IPv4 hosts */
    HOST_V4 = 8,
    HOST_V6 = 20,
    RECORD_FIELDS = 17,
};

/* The hosts of a pull's messages hardly change: the bytes object of the message before is taken again. */
static PyObject *
host_bytes(PyObject **last, const uint8_t *at, Py_ssize_t size)
{
    if (*last == NULL || PyBytes_GET_SIZE(*last) != size || memcmp(PyBytes_AS_STRING(*last), at, size) != 0) {
        PyObject *host = PyBytes_FromStringAndSize((const char *)at, size);
        if (host == NULL) {
            return NULL;
        }
        Py_XSETREF(*last, host);
    }
    return Py_NewRef(*last);
}

/* What stays the same for all messages of a call. The strings and the type are borrowed. */
typedef struct {
    PyTypeObject *record_type;
    PyObject *broker;
    PyObject *topic;
    const char *topic_bytes;
    Py_ssize_t topic_size;
    int check_crc;
    int untrack;
    PyObject *born_host; /* owned: of the message before */
    PyObject *store_host;
} Run;

/* The message at `at`, of which `left` bytes are there, as a Record. NULL without an exception: not a usual one. */
static PyObject *
decode_one(Run *run, const uint8_t *at, int64_t left, int64_t *message_size)
{
    if (left < HEADER_SIZE) {
        return NULL;
    }
    int64_t total = read_i32(at);
    uint32_t magic = read_u32(at + 4);
    int32_t sys_flag = read_i32(at + 36);
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || sys_flag & UNUSUAL_FLAGS || total > left) {
        return NULL;
    }
    int born_host_size = sys_flag & BORN_HOST_V6 ? HOST_V6 : HOST_V4;
    int store_host_size = sys_flag & STORE_HOST_V6 ? HOST_V6 : HOST_V4;
    int topic_length_size = magic == MAGIC_V1 ? 1 : 2;
    int64_t body_at = HEADER_SIZE - 2 * HOST_V4 + born_host_size + store_host_size;
    if (total < body_at + topic_length_size + 2) {
        return NULL;
    }
    const uint8_t *body = at + body_at;
    int64_t body_size = read_i32(body - 4);
    int64_t properties_at = body_at + body_size + topic_length_size + run->topic_size + 2;
    if (body_size < 0 || properties_at > total) {
        return NULL;
    }
    const uint8_t *tail = body + body_size; /* the topic's length, topic, the properties' length, the properties */
    int64_t topic_size = magic == MAGIC_V1 ? tail[0] : tail[0] << 8 | tail[1];
    const uint8_t *topic = tail + topic_length_size;
    const uint8_t *properties = at + properties_at;
    int64_t properties_size = total - properties_at;
    if (topic_size != run->topic_size || memcmp(topic, run->topic_bytes, (size_t)topic_size) != 0
        || properties_size != (int16_t)(properties[-2] << 8 | properties[-1])) {
        return NULL;
    }
    uint32_t crc = read_u32(at + 8);
    if (run->check_crc && (crc32_of(body, body_size) & 0x7FFFFFFF) != crc) {
        return NULL;
    }
    const uint8_t *born_host = at + BEFORE_BORN_HOST;
    const uint8_t *store_host = born_host + born_host_size + 8;
    PyObject *fields[RECORD_FIELDS] = {
        Py_NewRef(run->topic),
        Py_NewRef(run->broker),
        PyLong_FromLong(read_i32(at + 12)),                                     /* queue_id */
        PyLong_FromLongLong(read_i64(at + 20)),                                 /* queue_offset */
        PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)body_size),   /* body */
        PyLong_FromLongLong(read_i64(at + 40)),                                 /* born_timestamp_ms */
        PyLong_FromLongLong(read_i64(store_host - 8)),                          /* store_timestamp_ms */
        PyBytes_FromStringAndSize((const char *)properties, (Py_ssize_t)properties_size),
        PyLong_FromLong(read_i32(body - 16)),                                   /* reconsume_times */
        PyLong_FromLong(sys_flag),
        PyLong_FromLong(read_i32(at + 16)),                                     /* flag */
        PyLong_FromLongLong(read_i64(at + 28)),                                 /* commit_log_offset */
        PyLong_FromLongLong(read_i64(body - 12)),                               /* prepared_transaction_offset */
        host_bytes(&run->born_host, born_host, born_host_size),
        host_bytes(&run->store_host, store_host, store_host_size),
        PyLong_FromUnsignedLong(crc),
        PyLong_FromLong((long)total),                                           /* stored_size */
    };
    int failed = 0;
    for (int i = 0; i < RECORD_FIELDS; i++) {
        failed |= fields[i] == NULL;
    }
    /* As tuple.__new__ does for a subclass. */
    PyObject *record = failed ? NULL : run->record_type->tp_alloc(run->record_type, RECORD_FIELDS);
    if (record == NULL) {
        for (int i = 0; i < RECORD_FIELDS; i++) {
            Py_XDECREF(fields[i]);
        }
        return NULL;
    }
    for (int i = 0; i < RECORD_FIELDS; i++) {
        PyTuple_SET_ITEM(record, i, fields[i]);
    }
    if (run->untrack) {
        PyObject_GC_UnTrack(record);
    }
    *message_size = total;
    return record;
}

PyDoc_STRVAR(decode_usual_doc,
"decode_usual(data, position, records, broker, topic, check_crc) -> int\n\n"
"Append to `records` the usual messages from `position` on; return the position of the first that is not.");

static PyObject *
decode_usual(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 6) {
        PyErr_Format(PyExc_TypeError, "decode_usual takes 6 arguments, not %zd", count);
        return NULL;
    }
    PyObject *data = args[0], *records = args[2], *topic = args[4];
    if (!PyBytes_Check(data) || !PyList_Check(records)) {
        PyErr_SetString(PyExc_TypeError, "decode_usual takes bytes, and a list to append to");
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    if (position == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (position < 0 || position > size) {
        PyErr_Format(PyExc_ValueError, "position %zd is not in %zd bytes", position, size);
        return NULL;
    }
    Run run = {.broker = args[3], .topic = topic, .check_crc = PyObject_IsTrue(args[5])};
    if (run.check_crc < 0) {
        return NULL;
    }
    if (!PyUnicode_Check(topic) || (run.topic_bytes = PyUnicode_AsUTF8AndSize(topic, &run.topic_size)) == NULL) {
        PyErr_Clear(); /* no topic was announced, or none that could be stored: it is no message's */
        return PyLong_FromSsize_t(position);
    }
    run.record_type = ((State *)PyModule_GetState(module))->record_type;
    /* Strings, bytes and numbers make no cycle: the collector need not look at such a record ever again. */
    run.untrack = PyUnicode_CheckExact(topic) && PyUnicode_CheckExact(run.broker);

    const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(data);
    PyObject *record;
    int64_t message_size = 0;
    while ((record = decode_one(&run, bytes + position, size - position, &message_size)) != NULL) {
        int failed = PyList_Append(records, record);
        Py_DECREF(record);
        if (failed) {
            break;
        }
        position += (Py_ssize_t)message_size;
    }
    Py_XDECREF(run.born_host);
    Py_XDECREF(run.store_host);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(position);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static const char RECORD_LAYOUT[] =
    "topic broker queue_id queue_offset body born_timestamp_ms store_timestamp_ms raw_properties reconsume_times"
    " sys_flag flag commit_log_offset prepared_transaction_offset raw_born_host raw_store_host body_crc stored_size";
static const char MESSAGE_LAYOUT[] =
    "body topic tags keys properties sharding_key delay_level deliver_at_ms";
static const char RESULT_LAYOUT[] = "queue queue_offset message_id offset_message_id status recall_handle";

/* A tuple type of rmqio.model, if its fields are those that this file was written for. A stale build in a checkout must
   not be used: an ImportError makes rmqio go on in Python. */
static PyTypeObject *
tuple_type(PyObject *model, const char *name, const char *layout)
{
    PyObject *type = PyObject_GetAttrString(model, name);
    PyObject *fields = type == NULL ? NULL : PyObject_GetAttrString(type, "_fields");
    PyObject *space = fields == NULL ? NULL : PyUnicode_FromString(" ");
    PyObject *joined = space == NULL ? NULL : PyUnicode_Join(space, fields);
    int fits = joined != NULL && PyUnicode_CompareWithASCIIString(joined, layout) == 0 && PyType_Check(type)
        && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) && ((PyTypeObject *)type)->tp_dictoffset == 0;
    Py_XDECREF(fields);
    Py_XDECREF(space);
    Py_XDECREF(joined);
    if (!fits) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ImportError, "rmqio.wire._fast was built for another %s; install again", name);
        }
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static int
fast_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    fill_crc_table();
    PyObject *model = PyImport_ImportModule("rmqio.model");
    if (model != NULL) {
        state->record_type = tuple_type(model, "Record", RECORD_LAYOUT);
        if (state->record_type != NULL) {
            state->message_type = tuple_type(model, "Message", MESSAGE_LAYOUT);
        }
        if (state->message_type != NULL) {
            state->result_type = tuple_type(model, "SendResult", RESULT_LAYOUT);
        }
        if (state->result_type != NULL) {
            state->no_properties = PyObject_GetAttrString(model, "_NO_PROPERTIES");
        }
        Py_DECREF(model);
    }
    state->no_keys = PyTuple_New(0);
    if (state->no_properties == NULL || state->no_keys == NULL) {
        return -1;
    }
    PyObject *properties = PyImport_ImportModule("rmqio.wire.properties");
    if (properties != NULL) {
        state->reserved_names = PyObject_GetAttrString(properties, "RESERVED_NAMES");
        if (state->reserved_names != NULL) {
            state->transient_prefix = PyObject_GetAttrString(properties, "TRANSIENT_PREFIX");
        }
        Py_DECREF(properties);
    }
    if (state->transient_prefix == NULL) {
        return -1;
    }
    if (!PyFrozenSet_CheckExact(state->reserved_names) || !PyUnicode_CheckExact(state->transient_prefix)) {
        PyErr_SetString(PyExc_ImportError, "rmqio.wire._fast was built for other reserved names; install again");
        return -1;
    }
    return 0;
}

static int
fast_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->record_type);
    Py_VISIT(state->message_type);
    Py_VISIT(state->result_type);
    Py_VISIT(state->reserved_names);
    Py_VISIT(state->transient_prefix);
    Py_VISIT(state->no_keys);
    Py_VISIT(state->no_properties);
    return 0;
}

static int
fast_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->message_type);
    Py_CLEAR(state->result_type);
    Py_CLEAR(state->reserved_names);
    Py_CLEAR(state->transient_prefix);
    Py_CLEAR(state->no_keys);
    Py_CLEAR(state->no_properties);
    return 0;
}

static PyMethodDef fast_methods[] = {
    {"copies_of_usual", (PyCFunction)(void (*)(void))copies_of_usual, METH_FASTCALL, copies_of_usual_doc},
    {"decode_usual", (PyCFunction)(void (*)(void))decode_usual, METH_FASTCALL, decode_usual_doc},
    {"encode_usual", (PyCFunction)(void (*)(void))encode_usual, METH_FASTCALL, encode_usual_doc},
    {"is_for_topic", (PyCFunction)(void (*)(void))is_for_topic, METH_FASTCALL, is_for_topic_doc},
    {"read_usual_header", read_usual_header, METH_O, read_usual_header_doc},
    {"send_results", (PyCFunction)(void (*)(void))send_results, METH_FASTCALL, send_results_doc},
    {"usual_properties", (PyCFunction)(void (*)(void))usual_properties, METH_FASTCALL, usual_properties_doc},
    {"usual_size", usual_size, METH_O, usual_size_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot fast_slots[] = {
    {Py_mod_exec, fast_exec},
    {0, NULL},
};

static struct PyModuleDef fast_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rmqio.wire._fast",
    .m_doc = "The hot loops of rmqio.wire, compiled. Optional.",
    .m_size = sizeof(State),
    .m_methods = fast_methods,
    .m_slots = fast_slots,
    .m_traverse = fast_traverse,
    .m_clear = fast_clear,
};

PyMODINIT_FUNC
PyInit__fast(void)
{
    return PyModuleDef_Init(&fast_module);
}
