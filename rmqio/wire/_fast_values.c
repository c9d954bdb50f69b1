/* Values of sending, in C: the size of each message that is sent, and its result. */

#include "_fast.h"

enum {
    /* as in batch.py */
    ESTIMATED_MEMBER = 64,
    ESTIMATED_KEY = 64,
};

/* Whether it holds nothing that could be part of a cycle. Such a message is of no interest to the garbage collector,
   which would otherwise look at it again and again while it waits for its batch. */
static int
is_plain(const State *state, PyObject *const *fields)
{
    PyObject *keys = fields[MESSAGE_KEYS];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(keys, i))) {
            return 0;
        }
    }
    PyObject_GC_UnTrack(keys); /* as the collector itself does with a tuple of text, once it has looked at it */
    for (int i = 0; i < MESSAGE_FIELDS; i++) {
        PyObject *field = fields[i];
        if (i != MESSAGE_KEYS && field != state->no_properties && field != Py_None && !PyBytes_CheckExact(field)
            && !PyUnicode_CheckExact(field) && !PyLong_CheckExact(field)) {
            return 0;
        }
    }
    return 1;
}

/* As tuple.__new__ does for a subclass. A field that is NULL has its default. */
PyObject *
new_message(const State *state, PyObject *const *given)
{
    PyObject *fields[MESSAGE_FIELDS];
    for (int i = 0; i < MESSAGE_FIELDS; i++) {
        fields[i] = given[i] != NULL    ? given[i]
                    : i == MESSAGE_KEYS ? state->no_keys
                    : i == PROPERTIES   ? state->no_properties
                                        : Py_None;
    }
    PyObject *message = state->message_type->tp_alloc(state->message_type, MESSAGE_FIELDS);
    if (message != NULL) {
        for (int i = 0; i < MESSAGE_FIELDS; i++) {
            PyTuple_SET_ITEM(message, i, Py_NewRef(fields[i]));
        }
        if (is_plain(state, fields)) {
            PyObject_GC_UnTrack(message);
        }
    }
    return message;
}

const char usual_size_doc[] = PyDoc_STR(
"usual_size(element) -> int\n\n"
"`batch.estimated_size` of a Message that may go into any batch of its topic and has no properties; of anything else 0.\n"
"The garbage collector no longer looks at a plain one, which waits for its batch.");

PyObject *
usual_size(PyObject *module, PyObject *message)
{
    const State *state = PyModule_GetState(module);
    if (!Py_IS_TYPE(message, state->message_type) || PyTuple_GET_SIZE(message) != MESSAGE_FIELDS) {
        return PyLong_FromLong(0);
    }
    PyObject *body = PyTuple_GET_ITEM(message, BODY);
    PyObject *topic = PyTuple_GET_ITEM(message, TOPIC);
    PyObject *tags = PyTuple_GET_ITEM(message, MESSAGE_TAGS);
    PyObject *keys = PyTuple_GET_ITEM(message, MESSAGE_KEYS);
    if (!PyBytes_CheckExact(body) || PyBytes_GET_SIZE(body) == 0 || !(tags == Py_None || PyUnicode_CheckExact(tags))
        || !(topic == Py_None || PyUnicode_CheckExact(topic)) || !PyTuple_CheckExact(keys)
        || PyTuple_GET_ITEM(message, PROPERTIES) != state->no_properties
        || PyTuple_GET_ITEM(message, MESSAGE_SHARDING_KEY) != Py_None
        || PyTuple_GET_ITEM(message, DELAY_LEVEL) != Py_None || PyTuple_GET_ITEM(message, DELIVER_AT_MS) != Py_None) {
        return PyLong_FromLong(0);
    }
    if (is_plain(state, ((PyTupleObject *)message)->ob_item)) {
        PyObject_GC_UnTrack(message);
    }
    Py_ssize_t size = PyBytes_GET_SIZE(body) + ESTIMATED_MEMBER;
    if (PyTuple_GET_SIZE(keys) != 0 || (tags != Py_None && PyUnicode_GET_LENGTH(tags) != 0)) {
        size += ESTIMATED_KEY * (1 + PyTuple_GET_SIZE(keys));
    }
    return PyLong_FromSsize_t(size);
}

/* Whether it is a tuple of texts and numbers only, as a MessageQueue is. */
static int
is_plain_tuple(PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!PyUnicode_CheckExact(item) && !PyLong_CheckExact(item)) {
            return 0;
        }
    }
    return 1;
}

const char send_results_doc[] = PyDoc_STR(
"send_results(queue, first_offset, ids, offset_ids, status) -> list[SendResult]\n\n"
"One result for each id and offset id, at rising offsets.");

PyObject *
send_results(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_Format(PyExc_TypeError, "send_results takes 5 arguments, not %zd", count);
        return NULL;
    }
    const State *state = PyModule_GetState(module);
    PyObject *queue = args[0], *ids = args[2], *offset_ids = args[3], *status = args[4];
    long long offset = PyLong_AsLongLong(args[1]);
    if (offset == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (!PyList_Check(offset_ids)) {
        PyErr_SetString(PyExc_TypeError, "send_results takes a list of offset ids");
        return NULL;
    }
    ids = PySequence_Fast(ids, "ids must be a sequence");
    if (ids == NULL) {
        return NULL;
    }
    int plain_queue = is_plain_tuple(queue);
    Py_ssize_t results_count = Py_MIN(PySequence_Fast_GET_SIZE(ids), PyList_GET_SIZE(offset_ids));
    PyObject *results = PyList_New(results_count);
    for (Py_ssize_t i = 0; results != NULL && i < results_count; i++) {
        PyObject *queue_offset = PyLong_FromLongLong(offset + i);
        PyObject *result = queue_offset == NULL ? NULL : state->result_type->tp_alloc(state->result_type, RESULT_FIELDS);
        if (result == NULL) {
            Py_XDECREF(queue_offset);
            Py_CLEAR(results);
            break;
        }
        PyObject *id = PySequence_Fast_GET_ITEM(ids, i), *offset_id = PyList_GET_ITEM(offset_ids, i);
        PyTuple_SET_ITEM(result, 0, Py_NewRef(queue));
        PyTuple_SET_ITEM(result, 1, queue_offset);
        PyTuple_SET_ITEM(result, 2, Py_NewRef(id));
        PyTuple_SET_ITEM(result, 3, Py_NewRef(offset_id));
        PyTuple_SET_ITEM(result, 4, Py_NewRef(status));
        PyTuple_SET_ITEM(result, 5, Py_NewRef(Py_None)); /* recall_handle: who sends one message fills it in */
        PyList_SET_ITEM(results, i, result);
        if (plain_queue && PyUnicode_CheckExact(id) && PyUnicode_CheckExact(offset_id)) {
            PyObject_GC_UnTrack(result); /* as a Message that is plain */
        }
    }
    Py_DECREF(ids);
    return results;
}
