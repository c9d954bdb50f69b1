/* Messages that send records again, in C: `copies_of_usual` for copies.py. It stops in front of the first record that is
   anything but usual, and the Python code takes that one. */

#include "_fast.h"

#include <string.h>

enum {
    /* fields of Record */
    RECORD_BODY = 4,
    RECORD_PROPERTIES = 7,
    RECORD_FIELDS = 17,
};

/* What a broker and a producer add to most messages. All are in RESERVED_NAMES: a test compares them. Known here, they
   need no text object, which would cost more than all else. */
static const char *const usual_reserved[] = {"UNIQ_KEY", "WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", NULL};

static int
is_named(const char *name, Py_ssize_t size, const char *known)
{
    return strlen(known) == (size_t)size && memcmp(name, known, (size_t)size) == 0;
}

static int
is_usual_reserved(const char *name, Py_ssize_t size)
{
    for (int i = 0; usual_reserved[i] != NULL; i++) {
        if (is_named(name, size, usual_reserved[i])) {
            return 1;
        }
    }
    return 0;
}

/* 1: may be sent again; 0: reserved; -1: an exception. */
static int
is_users(const State *state, PyObject *name)
{
    int reserved = PySet_Contains(state->reserved_names, name);
    if (reserved == 0) {
        reserved = (int)PyUnicode_Tailmatch(name, state->transient_prefix, 0, PY_SSIZE_T_MAX, -1);
    }
    return reserved < 0 ? -1 : !reserved;
}

/* Puts a property into the fields of the message. 0; or -1, perhaps with an exception: not a usual one. */
static int
take(const State *state, PyObject **fields, const char *name, Py_ssize_t name_size, const char *value,
     Py_ssize_t value_size)
{
    if (is_usual_reserved(name, name_size)) {
        return 0;
    }
    int field = is_named(name, name_size, "TAGS")            ? MESSAGE_TAGS
                : is_named(name, name_size, "KEYS")          ? MESSAGE_KEYS
                : is_named(name, name_size, "__SHARDINGKEY") ? MESSAGE_SHARDING_KEY
                                                             : PROPERTIES;
    if (field != PROPERTIES && fields[field] != NULL) {
        return -1; /* twice */
    }
    PyObject *text = PyUnicode_DecodeUTF8(value, value_size, NULL);
    if (text == NULL) {
        return -1;
    }
    if (field == MESSAGE_KEYS) {
        PyObject *words = PyUnicode_Split(text, NULL, -1);
        Py_DECREF(text);
        if (words == NULL) {
            return -1;
        }
        fields[field] = PyList_AsTuple(words);
        Py_DECREF(words);
        return fields[field] == NULL ? -1 : 0;
    }
    if (field != PROPERTIES) {
        if (value_size == 0) {
            Py_DECREF(text);
            text = Py_NewRef(Py_None);
        }
        fields[field] = text;
        return 0;
    }
    PyObject *key = PyUnicode_DecodeUTF8(name, name_size, NULL);
    int result = key == NULL ? -1 : is_users(state, key);
    if (result == 1) {
        if (fields[PROPERTIES] == NULL) {
            fields[PROPERTIES] = PyDict_New();
        }
        /* An empty value, or a name that comes twice: rare, and the last one counts. */
        int usual = fields[PROPERTIES] != NULL && value_size != 0 && PyDict_Contains(fields[PROPERTIES], key) == 0;
        result = usual ? PyDict_SetItem(fields[PROPERTIES], key, text) : -1;
    }
    Py_XDECREF(key);
    Py_DECREF(text);
    return result;
}

static PyObject *
copy_of(const State *state, PyObject *record)
{
    if (!Py_IS_TYPE(record, state->record_type) || PyTuple_GET_SIZE(record) != RECORD_FIELDS) {
        return NULL;
    }
    PyObject *raw = PyTuple_GET_ITEM(record, RECORD_PROPERTIES), *message = NULL;
    PyObject *fields[MESSAGE_FIELDS] = {PyTuple_GET_ITEM(record, RECORD_BODY)};
    if (!PyBytes_CheckExact(raw)) {
        return NULL;
    }
    const char *at = PyBytes_AS_STRING(raw), *end = at + PyBytes_GET_SIZE(raw);
    while (at < end) {
        const char *stop = memchr(at, 2, (size_t)(end - at));
        if (stop == NULL) {
            stop = end;
        }
        const char *value = memchr(at, 1, (size_t)(stop - at));
        if (value != NULL && value > at && take(state, fields, at, value - at, value + 1, stop - value - 1) < 0) {
            goto done;
        }
        at = stop + 1;
    }
    message = new_message(state, fields);
done:
    for (int i = BODY + 1; i < MESSAGE_FIELDS; i++) {
        Py_XDECREF(fields[i]);
    }
    return message;
}

const char copies_of_usual_doc[] = PyDoc_STR(
"copies_of_usual(records, begin) -> list[Message]\n\n"
"The messages that send records again, from an index on, up to the first record that is not usual.");

PyObject *
copies_of_usual(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "copies_of_usual takes a list and an index");
        return NULL;
    }
    const State *state = PyModule_GetState(module);
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]);
    if (begin == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (begin < 0) {
        PyErr_SetString(PyExc_ValueError, "begin is negative");
        return NULL;
    }
    PyObject *copies = PyList_New(0);
    /* The list is asked for its size each time: garbage collection can run code that changes it. */
    for (Py_ssize_t i = begin; copies != NULL && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *record = Py_NewRef(PyList_GET_ITEM(args[0], i));
        PyObject *message = copy_of(state, record);
        Py_DECREF(record);
        if (message == NULL) {
            PyErr_Clear(); /* Python's code finds out */
            break;
        }
        if (PyList_Append(copies, message) < 0) {
            Py_CLEAR(copies);
        }
        Py_DECREF(message);
    }
    return copies;
}
