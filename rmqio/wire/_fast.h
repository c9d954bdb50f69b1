/* What the files of rmqio.wire._fast share. */

#ifndef RMQIO_FAST_H
#define RMQIO_FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *message_type;
    PyTypeObject *result_type;
    PyObject *reserved_names;   /* frozenset */
    PyObject *transient_prefix; /* str: names that begin so are reserved too */
    PyObject *no_keys;          /* what a Message has that is given none */
    PyObject *no_properties;
} State;

enum {
    /* fields of Message */
    BODY, TOPIC, MESSAGE_TAGS, MESSAGE_KEYS, PROPERTIES, MESSAGE_SHARDING_KEY, DELAY_LEVEL, DELIVER_AT_MS,
    MESSAGE_FIELDS,
    RESULT_FIELDS = 6, /* of SendResult */
};

/* A Message of these fields: a body, a tuple of keys, NULL for what has its default. */
PyObject *new_message(const State *state, PyObject *const *fields);

PyObject *encode_usual(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char encode_usual_doc[];
PyObject *usual_properties(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char usual_properties_doc[];
PyObject *is_for_topic(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char is_for_topic_doc[];
PyObject *copies_of_usual(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char copies_of_usual_doc[];
PyObject *usual_size(PyObject *module, PyObject *message);
extern const char usual_size_doc[];
PyObject *send_results(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char send_results_doc[];
PyObject *read_usual_header(PyObject *module, PyObject *data);
extern const char read_usual_header_doc[];

#endif
