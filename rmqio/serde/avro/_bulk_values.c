/* Avro bodies to Python's values: dicts, tuples of any class, lists, text, numbers. */

#include "_bulk.h"

enum Kind {
    NULL_VALUE, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING,
    FIXED,  /* argument: the size */
    ENUM,   /* argument: a tuple of the values for the symbols */
    LIST, TUPLE, MAP,
    UNION,
    RECORD, /* a dict; argument: a tuple of the names */
    ROW,    /* a tuple of a class; argument: the class; more: where each field goes */
    MADE,   /* what a function makes of a list of the fields; argument: the function; more: where each field goes */
    CALL,   /* what a function makes of the value of the only part; argument: the function */
    DECIMAL, /* what a function makes of text; more: the size of a fixed or -1 for bytes, digits, digits after the point */
    KINDS,
};

typedef struct {
    int kind;
    Py_ssize_t count;
    Py_ssize_t *parts;
    Py_ssize_t *places; /* of the fields in the result; -1: left out */
    Py_ssize_t size;    /* of a fixed, or how many fields the result has */
    int scale;
    int64_t limit;      /* of a decimal */
    PyObject *argument;
} Node;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Py_ssize_t root;
    Node *nodes;
} Values;

static PyObject *value_of(const Values *self, Py_ssize_t index, Bytes *bytes, int level);

/* NULL without an exception: not usual. */
static PyObject *unusual(void)
{
    return NULL;
}

static PyObject *list_of(const Values *self, const Node *node, Bytes *bytes, int level)
{
    Py_ssize_t count;
    const uint8_t *block_end;
    PyObject *list = NULL;
    for (;;) {
        if (read_block(bytes, &count, &block_end) < 0)
            goto failed;
        if (list == NULL) {
            /* Not so many places as it says: a body of few bytes could claim gigabytes. A byte for each is checked. */
            list = PyList_New(0);
            if (list == NULL)
                return NULL;
        }
        if (count == 0)
            return list;
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *item = value_of(self, node->parts[0], bytes, level + 1);
            if (item == NULL)
                goto failed;
            int done = PyList_Append(list, item);
            Py_DECREF(item);
            if (done < 0)
                goto failed;
        }
        if (block_end != NULL && bytes->at != block_end)
            goto failed;
    }
failed:
    Py_XDECREF(list);
    return NULL;
}

static PyObject *map_of(const Values *self, const Node *node, Bytes *bytes, int level)
{
    PyObject *map = PyDict_New();
    if (map == NULL)
        return NULL;
    for (;;) {
        Py_ssize_t count, size;
        const uint8_t *text, *block_end;
        if (read_block(bytes, &count, &block_end) < 0)
            goto failed;
        if (count == 0)
            return map;
        for (Py_ssize_t i = 0; i < count; i++) {
            if (read_sized(bytes, &text, &size) < 0)
                goto failed;
            PyObject *key = PyUnicode_DecodeUTF8((const char *)text, size, NULL);
            if (key == NULL)
                goto failed;
            PyObject *value = value_of(self, node->parts[0], bytes, level + 1);
            int done = value == NULL ? -1 : PyDict_SetItem(map, key, value);
            Py_DECREF(key);
            Py_XDECREF(value);
            if (done < 0)
                goto failed;
        }
        if (block_end != NULL && bytes->at != block_end)
            goto failed;
    }
failed:
    Py_DECREF(map);
    return NULL;
}

static PyObject *record_of(const Values *self, const Node *node, Bytes *bytes, int level)
{
    PyObject *record = PyDict_New();
    if (record == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *value = value_of(self, node->parts[i], bytes, level + 1);
        int done = value == NULL ? -1 : PyDict_SetItem(record, PyTuple_GET_ITEM(node->argument, i), value);
        Py_XDECREF(value);
        if (done < 0) {
            Py_DECREF(record);
            return NULL;
        }
    }
    return record;
}

/* The fields into the places of a new tuple or list, which has as many. */
static int fill(const Values *self, const Node *node, Bytes *bytes, int level, PyObject **items)
{
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *value = value_of(self, node->parts[i], bytes, level + 1);
        if (value == NULL)
            return -1;
        if (node->places[i] < 0)
            Py_DECREF(value);
        else
            items[node->places[i]] = value; /* each place once, see `places_of` */
    }
    return 0;
}

/* Whether nothing can make the tuple part of a cycle: it and its items are immutable, or hold no other objects. */
static int is_free_of_cycles(PyObject *row)
{
    PyTypeObject *type = Py_TYPE(row);
    if (type->tp_dictoffset != 0 || type->tp_basicsize != PyTuple_Type.tp_basicsize)
        return 0; /* it can get attributes */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(row); i++) {
        PyObject *item = PyTuple_GET_ITEM(row, i);
        /* A dict may be untracked until something is put into it. */
        if (PyObject_IS_GC(item) && (!PyTuple_Check(item) || PyObject_GC_IsTracked(item)))
            return 0;
    }
    return 1;
}

static PyObject *row_of(const Values *self, const Node *node, Bytes *bytes, int level)
{
    PyTypeObject *type = (PyTypeObject *)node->argument;
    PyObject *row = type->tp_alloc(type, node->size);
    if (row == NULL)
        return NULL;
    if (fill(self, node, bytes, level, ((PyTupleObject *)row)->ob_item) < 0) {
        Py_DECREF(row);
        return NULL;
    }
    /* The collector would look again and again at those that wait in a batch. */
    if (is_free_of_cycles(row))
        PyObject_GC_UnTrack(row);
    return row;
}

static PyObject *made_of(const Values *self, const Node *node, Bytes *bytes, int level)
{
    PyObject *fields = PyTuple_New(node->size);
    if (fields == NULL)
        return NULL;
    PyObject *made = NULL;
    if (fill(self, node, bytes, level, ((PyTupleObject *)fields)->ob_item) == 0)
        made = PyObject_CallOneArg(node->argument, fields);
    Py_DECREF(fields);
    return made;
}

#define MAX_DIGITS 18

/* The decimal of a number of at most 18 digits: Python's class reads text faster than it scales a number. */
static PyObject *decimal_of(const Node *node, Bytes *bytes)
{
    const uint8_t *found;
    Py_ssize_t size = node->size;
    if ((size < 0 ? read_sized(bytes, &found, &size) : read_fixed(bytes, size, &found)) < 0 || size < 1 || size > 8)
        return unusual();
    uint64_t bits = found[0] & 0x80 ? ~(uint64_t)0 : 0;
    for (Py_ssize_t i = 0; i < size; i++)
        bits = bits << 8 | found[i];
    int is_negative = bits >> 63;
    uint64_t magnitude = is_negative ? -bits : bits;
    if (magnitude >= (uint64_t)node->limit)
        return unusual();
    char text[MAX_DIGITS + 4], *at = text + sizeof text;
    int digits = 0;
    do {
        if (digits == node->scale && digits > 0)
            *--at = '.';
        *--at = (char)('0' + magnitude % 10);
        magnitude /= 10;
        digits++;
    } while (magnitude || digits <= node->scale);
    if (is_negative)
        *--at = '-';
    PyObject *given = PyUnicode_FromStringAndSize(at, text + sizeof text - at);
    PyObject *made = given == NULL ? NULL : PyObject_CallOneArg(node->argument, given);
    Py_XDECREF(given);
    return made;
}

static PyObject *value_of(const Values *self, Py_ssize_t index, Bytes *bytes, int level)
{
    const Node *node = &self->nodes[index];
    if (level > MAX_LEVELS)
        return unusual();
    switch (node->kind) {
    case NULL_VALUE:
        Py_RETURN_NONE;
    case BOOLEAN: {
        int value;
        return read_boolean(bytes, &value) < 0 ? unusual() : PyBool_FromLong(value);
    }
    case INT: {
        int32_t value;
        return read_int(bytes, &value) < 0 ? unusual() : PyLong_FromLong(value);
    }
    case LONG: {
        int64_t value;
        return read_long(bytes, &value) < 0 ? unusual() : PyLong_FromLongLong(value);
    }
    case FLOAT: {
        float value;
        return read_float(bytes, &value) < 0 ? unusual() : PyFloat_FromDouble(value);
    }
    case DOUBLE: {
        double value;
        return read_double(bytes, &value) < 0 ? unusual() : PyFloat_FromDouble(value);
    }
    case BYTES: {
        const uint8_t *found;
        Py_ssize_t size;
        if (read_sized(bytes, &found, &size) < 0)
            return unusual();
        return PyBytes_FromStringAndSize((const char *)found, size);
    }
    case STRING: {
        const uint8_t *found;
        Py_ssize_t size;
        if (read_sized(bytes, &found, &size) < 0)
            return unusual();
        return PyUnicode_DecodeUTF8((const char *)found, size, NULL);
    }
    case FIXED: {
        const uint8_t *found;
        if (read_fixed(bytes, node->size, &found) < 0)
            return unusual();
        return PyBytes_FromStringAndSize((const char *)found, node->size);
    }
    case ENUM: {
        Py_ssize_t number;
        if (read_index(bytes, node->size, &number) < 0)
            return unusual();
        return Py_NewRef(PyTuple_GET_ITEM(node->argument, number));
    }
    case LIST:
        return list_of(self, node, bytes, level);
    case TUPLE: {
        PyObject *list = list_of(self, node, bytes, level);
        PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
        Py_XDECREF(list);
        return tuple;
    }
    case MAP:
        return map_of(self, node, bytes, level);
    case UNION: {
        Py_ssize_t branch;
        if (read_index(bytes, node->count, &branch) < 0)
            return unusual();
        return value_of(self, node->parts[branch], bytes, level + 1);
    }
    case RECORD:
        return record_of(self, node, bytes, level);
    case ROW:
        return row_of(self, node, bytes, level);
    case MADE:
        return made_of(self, node, bytes, level);
    case DECIMAL:
        return decimal_of(node, bytes);
    default: { /* CALL */
        PyObject *value = value_of(self, node->parts[0], bytes, level + 1);
        if (value == NULL)
            return NULL;
        PyObject *made = PyObject_CallOneArg(node->argument, value);
        Py_DECREF(value);
        return made;
    }
    }
}

/* The value that fills a body from an offset on; NULL, perhaps with the exception of a function that was called. */
static PyObject *whole(const Values *self, PyObject *body, Py_ssize_t offset)
{
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(body);
    Py_ssize_t size = PyBytes_GET_SIZE(body);
    if (offset > size)
        return unusual();
    Bytes bytes = {data + offset, data + size};
    PyObject *value = value_of(self, self->root, &bytes, 0);
    if (value != NULL && bytes.at != bytes.end) {
        Py_DECREF(value);
        return unusual();
    }
    return value;
}

/* Whether an exception is one that Python meets again, and reports, when it decodes the body. It is cleared then. */
static int is_left_to_python(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return 0;
    PyErr_Clear();
    return 1;
}

static int is_given(PyObject *body, Py_ssize_t offset)
{
    if (PyBytes_Check(body) && offset >= 0)
        return 1;
    PyErr_SetString(PyExc_TypeError, "a body is bytes, and its value begins at an offset in it");
    return 0;
}

static PyObject *one(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "one(body, offset)");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(args[1]);
    if ((offset == -1 && PyErr_Occurred()) || !is_given(args[0], offset))
        return NULL;
    PyObject *value = whole((Values *)self, args[0], offset);
    if (value == NULL && is_left_to_python())
        PyErr_SetNone(PyExc_LookupError);
    return value;
}

static PyObject *many(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "many(list of bodies, offset)");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(args[1]);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    PyObject *values = PyList_New(0), *left = PyList_New(0);
    if (values == NULL || left == NULL)
        goto failed;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *body = Py_NewRef(PyList_GET_ITEM(args[0], i));
        PyObject *value = is_given(body, offset) ? whole((Values *)self, body, offset) : NULL;
        int is_wrong = value == NULL && (!PyBytes_Check(body) || offset < 0);
        Py_DECREF(body);
        if (value == NULL) {
            if (is_wrong || !is_left_to_python())
                goto failed;
            PyObject *position = PyLong_FromSsize_t(i);
            int done = position == NULL ? -1 : PyList_Append(left, position);
            Py_XDECREF(position);
            if (done < 0)
                goto failed;
            continue;
        }
        int done = PyList_Append(values, value);
        Py_DECREF(value);
        if (done < 0)
            goto failed;
    }
    PyObject *both = PyTuple_Pack(2, values, left);
    Py_DECREF(values);
    Py_DECREF(left);
    return both;
failed:
    Py_XDECREF(values);
    Py_XDECREF(left);
    return NULL;
}

static void clear_nodes(Values *self)
{
    for (Py_ssize_t i = 0; self->nodes != NULL && i < self->count; i++) {
        PyMem_Free(self->nodes[i].parts);
        PyMem_Free(self->nodes[i].places);
        Py_CLEAR(self->nodes[i].argument);
    }
    PyMem_Free(self->nodes);
    self->nodes = NULL;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    Values *values = (Values *)self;
    for (Py_ssize_t i = 0; values->nodes != NULL && i < values->count; i++)
        Py_VISIT(values->nodes[i].argument);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int clear(PyObject *self)
{
    Values *values = (Values *)self;
    for (Py_ssize_t i = 0; values->nodes != NULL && i < values->count; i++)
        Py_CLEAR(values->nodes[i].argument);
    return 0;
}

static void deallocate(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear_nodes((Values *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Numbers of a tuple, each at least `least` and less than `most`; NULL with an exception. */
static Py_ssize_t *numbers_of(PyObject *tuple, Py_ssize_t least, Py_ssize_t most)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    Py_ssize_t *found = PyMem_New(Py_ssize_t, count ? count : 1);
    if (found == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        found[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (!PyErr_Occurred() && (found[i] < least || found[i] >= most))
            PyErr_SetString(PyExc_ValueError, "a number that leads nowhere");
        if (PyErr_Occurred()) {
            PyMem_Free(found);
            return NULL;
        }
    }
    return found;
}

/* Where each field goes, all places once. 0, or -1 with an exception. */
static int places_of(Node *node, PyObject *given)
{
    Py_ssize_t filled = 0;
    if (PyTuple_GET_SIZE(given) != node->count) {
        PyErr_SetString(PyExc_ValueError, "a place for each field");
        return -1;
    }
    node->places = numbers_of(given, -1, node->count);
    if (node->places == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        filled += node->places[i] >= 0;
        for (Py_ssize_t j = 0; j < i; j++)
            if (node->places[i] >= 0 && node->places[i] == node->places[j]) {
                PyErr_SetString(PyExc_ValueError, "two fields in one place");
                return -1;
            }
    }
    for (Py_ssize_t i = 0; i < node->count; i++)
        if (node->places[i] >= filled) {
            PyErr_SetString(PyExc_ValueError, "a place that stays empty");
            return -1;
        }
    node->size = filled;
    return 0;
}

static int has_parts(const Node *node)
{
    switch (node->kind) {
    case LIST: case TUPLE: case MAP: case CALL:
        return node->count == 1;
    case UNION: case RECORD: case ROW: case MADE:
        return 1;
    default:
        return node->count == 0;
    }
}

/* Fills a node from (kind, parts, argument, places). 0, or -1 with an exception. */
static int parse(Node *node, PyObject *given, Py_ssize_t count)
{
    PyObject *parts, *argument, *places;
    if (!PyTuple_Check(given)
        || !PyArg_ParseTuple(given, "iO!OO!", &node->kind, &PyTuple_Type, &parts, &argument, &PyTuple_Type, &places)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a node is a tuple");
        return -1;
    }
    node->count = PyTuple_GET_SIZE(parts);
    if (node->kind < 0 || node->kind >= KINDS || !has_parts(node)) {
        PyErr_SetString(PyExc_ValueError, "no such kind of node, or of another number of parts");
        return -1;
    }
    node->parts = numbers_of(parts, 0, count);
    if (node->parts == NULL)
        return -1;
    node->argument = Py_NewRef(argument);
    if (node->kind == FIXED) {
        node->size = PyLong_AsSsize_t(argument);
        if (node->size < 0 && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a negative size");
    } else if (node->kind == ENUM || node->kind == RECORD) {
        if (!PyTuple_Check(argument) || (node->kind == RECORD && PyTuple_GET_SIZE(argument) != node->count))
            PyErr_SetString(PyExc_TypeError, "a tuple of all names");
        else
            node->size = PyTuple_GET_SIZE(argument);
    } else if (node->kind == DECIMAL) {
        int digits;
        if (!PyArg_ParseTuple(places, "nii", &node->size, &digits, &node->scale))
            return -1;
        if (node->size < -1 || digits < 1 || digits > MAX_DIGITS || node->scale < 0 || node->scale > digits)
            PyErr_SetString(PyExc_ValueError, "no such decimal");
        node->limit = 1;
        for (int i = 0; i < digits; i++)
            node->limit *= 10;
    } else if (node->kind == ROW || node->kind == MADE) {
        if (node->kind == ROW
            && (!PyType_Check(argument) || !PyType_IsSubtype((PyTypeObject *)argument, &PyTuple_Type)))
            PyErr_SetString(PyExc_TypeError, "a class of tuples");
        else if (places_of(node, places) < 0)
            return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *nodes;
    Py_ssize_t root;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "Values(nodes, root)");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!n", &PyTuple_Type, &nodes, &root))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(nodes);
    if (root < 0 || root >= count) {
        PyErr_SetString(PyExc_ValueError, "no node is the root");
        return NULL;
    }
    Values *self = (Values *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->root = root;
    self->count = count;
    self->nodes = PyMem_Calloc(count, sizeof(Node));
    if (self->nodes == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse(&self->nodes[i], PyTuple_GET_ITEM(nodes, i), count) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"one", (PyCFunction)(void (*)(void))one, METH_FASTCALL,
     "one(body, offset): the value that fills the body from there on. Raises LookupError: Python has to decode it."},
    {"many", (PyCFunction)(void (*)(void))many, METH_FASTCALL,
     "many(bodies, offset): the values, and the positions of the bodies that Python has to decode."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "Values(nodes, root): decodes bodies. A node is (kind, parts, argument, places)."},
    {Py_tp_new, create},
    {Py_tp_dealloc, deallocate},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "rmqio.serde.avro._bulk.Values",
    .basicsize = sizeof(Values),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

PyObject *values_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
