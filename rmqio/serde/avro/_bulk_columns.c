/* Avro bodies to the buffers of Arrow's arrays. Runs without the GIL. */

#include "_bulk.h"

enum Kind {
    NOTHING,                              /* of type null */
    BOOLEAN, INT, LONG, FLOAT, DOUBLE,    /* a buffer of values; booleans as bits */
    BYTES, STRING,                        /* a buffer of offsets and one of data */
    FIXED,                                /* the same; size */
    ENUM,                                 /* the same; the symbols */
    DECIMAL,                              /* 16 bytes each; size of a fixed, or -1 for bytes; digits */
    TIME_MILLIS, TIME_MICROS,             /* an INT or LONG that must be a time of day */
    LIST,                                 /* a buffer of offsets, one part */
    MAP,                                  /* the same; its parts are a STRING and the values */
    STRUCT,
    KINDS,
};

#define NO_BRANCH (-1)
#define MAX_DIGITS 38

typedef struct {
    int kind;
    int null_branch; /* which branch of a union of two is null; NO_BRANCH: no union, never null */
    Py_ssize_t count;
    Py_ssize_t *parts;
    Py_ssize_t size;
    Py_ssize_t symbols;
    char **texts; /* the symbols */
    Py_ssize_t *sizes;
    unsigned __int128 limit; /* of a decimal */
} Node;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Py_ssize_t root;
    Node *nodes;
} Columns;

/* What grows. `length` values, of which the last `nulls` ... are counted; offsets and validity have a place for each. */
typedef struct {
    uint8_t *valid;
    uint8_t *values; /* or offsets */
    uint8_t *data;
    Py_ssize_t room;      /* in values and valid */
    Py_ssize_t data_room; /* bytes */
} Buffers;

typedef struct {
    Py_ssize_t length;
    Py_ssize_t nulls;
    Py_ssize_t used; /* bytes of data, or items of a list */
} Filled;

typedef struct {
    const Columns *columns;
    Buffers *buffers;
    Filled *filled;
    int no_memory;
} Building;

static int width_of(int kind)
{
    switch (kind) {
    case NOTHING: case STRUCT:
        return 0;
    case BOOLEAN:
        return 1;
    case INT: case FLOAT: case TIME_MILLIS:
        return 4;
    case LONG: case DOUBLE: case TIME_MICROS:
        return 8;
    case DECIMAL:
        return 16;
    default: /* offsets */
        return 4;
    }
}

static int has_offsets(int kind)
{
    return kind == BYTES || kind == STRING || kind == FIXED || kind == ENUM || kind == LIST || kind == MAP;
}

static int grow(Building *building, Py_ssize_t index)
{
    const Node *node = &building->columns->nodes[index];
    Buffers *buffers = &building->buffers[index];
    Py_ssize_t room = buffers->room ? buffers->room * 2 : 256;
    int width = width_of(node->kind);
    if (width) {
        uint8_t *values = PyMem_RawRealloc(buffers->values, (room + 1) * width);
        if (values == NULL)
            goto failed;
        if (buffers->room == 0 && has_offsets(node->kind))
            memset(values, 0, 4);
        buffers->values = values;
    }
    if (node->null_branch != NO_BRANCH) {
        uint8_t *valid = PyMem_RawRealloc(buffers->valid, room);
        if (valid == NULL)
            goto failed;
        buffers->valid = valid;
    }
    buffers->room = room;
    return 0;
failed:
    building->no_memory = 1;
    return -1;
}

static int append_data(Building *building, Py_ssize_t index, const uint8_t *data, Py_ssize_t size)
{
    Buffers *buffers = &building->buffers[index];
    Filled *filled = &building->filled[index];
    if (size > INT32_MAX - filled->used)
        return -1; /* more than an array holds */
    if (filled->used + size > buffers->data_room) {
        Py_ssize_t room = 2 * (filled->used + size) + 256;
        uint8_t *grown = PyMem_RawRealloc(buffers->data, room);
        if (grown == NULL) {
            building->no_memory = 1;
            return -1;
        }
        buffers->data = grown;
        buffers->data_room = room;
    }
    if (size)
        memcpy(buffers->data + filled->used, data, size);
    filled->used += size;
    return 0;
}

/* UTF-8 as Python decodes it: neither surrogates nor longer forms than needed. */
static int is_utf8(const uint8_t *at, Py_ssize_t size)
{
    const uint8_t *end = at + size;
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8) {
            memcpy(&eight, at, 8);
            if (!(eight & 0x8080808080808080ull)) {
                at += 8;
                continue;
            }
        }
        uint8_t first = *at++;
        if (first < 0x80)
            continue;
        int more;
        uint8_t least = 0x80, most = 0xbf;
        if (first >= 0xc2 && first <= 0xdf)
            more = 1;
        else if (first >= 0xe0 && first <= 0xef) {
            more = 2;
            if (first == 0xe0)
                least = 0xa0;
            if (first == 0xed)
                most = 0x9f;
        } else if (first >= 0xf0 && first <= 0xf4) {
            more = 3;
            if (first == 0xf0)
                least = 0x90;
            if (first == 0xf4)
                most = 0x8f;
        } else
            return 0;
        if (end - at < more || *at < least || *at > most)
            return 0;
        for (at++, more--; more > 0; at++, more--)
            if ((*at & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

static int decimal_of(const Node *node, const uint8_t *bytes, Py_ssize_t size, __int128 *found)
{
    if (size < 1 || size > 16)
        return -1;
    unsigned __int128 value = bytes[0] & 0x80 ? ~(unsigned __int128)0 : 0;
    for (Py_ssize_t i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    *found = (__int128)value;
    unsigned __int128 magnitude = *found < 0 ? -value : value;
    return magnitude < node->limit ? 0 : -1;
}

static int append(Building *building, Py_ssize_t index, Bytes *bytes, int level);

/* A place for a null, or for a part of a struct that is null. */
static int append_empty(Building *building, Py_ssize_t index)
{
    const Node *node = &building->columns->nodes[index];
    Filled *filled = &building->filled[index];
    if (filled->length == building->buffers[index].room && grow(building, index) < 0)
        return -1;
    Buffers *buffers = &building->buffers[index];
    int width = width_of(node->kind);
    if (has_offsets(node->kind)) {
        int32_t offset = (int32_t)filled->used;
        memcpy(buffers->values + 4 * (filled->length + 1), &offset, 4);
    } else if (width)
        memset(buffers->values + filled->length * width, 0, width);
    if (node->null_branch != NO_BRANCH) {
        buffers->valid[filled->length] = 0;
        filled->nulls++;
    }
    filled->length++;
    if (node->kind == STRUCT)
        for (Py_ssize_t i = 0; i < node->count; i++)
            if (append_empty(building, node->parts[i]) < 0)
                return -1;
    return 0;
}

static int append_items(Building *building, Py_ssize_t index, Bytes *bytes, int level)
{
    const Node *node = &building->columns->nodes[index];
    Filled *filled = &building->filled[index];
    Py_ssize_t begin = filled->used;
    for (;;) {
        Py_ssize_t count;
        const uint8_t *block_end;
        if (read_block(bytes, &count, &block_end) < 0)
            return -1;
        if (count == 0) {
            if (node->kind != MAP || filled->used - begin < 2)
                return 0;
            const Buffers *keys = &building->buffers[node->parts[0]];
            return -repeats_a_key(keys->data, (const int32_t *)keys->values, begin, filled->used);
        }
        if (count > INT32_MAX - filled->used)
            return -1;
        for (Py_ssize_t i = 0; i < count; i++)
            for (Py_ssize_t part = 0; part < node->count; part++)
                if (append(building, node->parts[part], bytes, level + 1) < 0)
                    return -1;
        if (block_end != NULL && bytes->at != block_end)
            return -1;
        filled->used += count;
    }
}

/* The next value of a node. 0, or -1 if it is not usual, or there is no memory. */
static int append(Building *building, Py_ssize_t index, Bytes *bytes, int level)
{
    const Node *node = &building->columns->nodes[index];
    Filled *filled = &building->filled[index];
    if (level > MAX_LEVELS)
        return -1;
    if (node->null_branch != NO_BRANCH) {
        Py_ssize_t branch;
        if (node->null_branch == 2) { /* a union of null alone, or the type null */
            if (node->size == 0)
                return append_empty(building, index);
            return read_index(bytes, node->size, &branch) < 0 ? -1 : append_empty(building, index);
        }
        if (read_index(bytes, 2, &branch) < 0)
            return -1;
        if (branch == node->null_branch)
            return append_empty(building, index);
    }
    if (filled->length == building->buffers[index].room && grow(building, index) < 0)
        return -1;
    Buffers *buffers = &building->buffers[index];
    Py_ssize_t at = filled->length;
    switch (node->kind) {
    case BOOLEAN: {
        int value;
        if (read_boolean(bytes, &value) < 0)
            return -1;
        buffers->values[at] = (uint8_t)value;
        break;
    }
    case INT:
    case TIME_MILLIS: {
        int32_t value;
        if (read_int(bytes, &value) < 0)
            return -1;
        if (node->kind == TIME_MILLIS && (value < 0 || value >= 86400000))
            return -1;
        ((int32_t *)buffers->values)[at] = value;
        break;
    }
    case LONG:
    case TIME_MICROS: {
        int64_t value;
        if (read_long(bytes, &value) < 0)
            return -1;
        if (node->kind == TIME_MICROS && (value < 0 || value >= 86400000000ll))
            return -1;
        ((int64_t *)buffers->values)[at] = value;
        break;
    }
    case FLOAT:
        if (read_float(bytes, &((float *)buffers->values)[at]) < 0)
            return -1;
        break;
    case DOUBLE:
        if (read_double(bytes, &((double *)buffers->values)[at]) < 0)
            return -1;
        break;
    case DECIMAL: {
        const uint8_t *found;
        Py_ssize_t size = node->size;
        if ((size < 0 ? read_sized(bytes, &found, &size) : read_fixed(bytes, size, &found)) < 0)
            return -1;
        if (decimal_of(node, found, size, &((__int128 *)buffers->values)[at]) < 0)
            return -1;
        break;
    }
    case BYTES:
    case STRING: {
        const uint8_t *found;
        Py_ssize_t size;
        if (read_sized(bytes, &found, &size) < 0 || (node->kind == STRING && !is_utf8(found, size)))
            return -1;
        if (append_data(building, index, found, size) < 0)
            return -1;
        break;
    }
    case FIXED: {
        const uint8_t *found;
        if (read_fixed(bytes, node->size, &found) < 0 || append_data(building, index, found, node->size) < 0)
            return -1;
        break;
    }
    case ENUM: {
        Py_ssize_t number;
        if (read_index(bytes, node->symbols, &number) < 0)
            return -1;
        if (append_data(building, index, (uint8_t *)node->texts[number], node->sizes[number]) < 0)
            return -1;
        break;
    }
    case LIST:
    case MAP:
        if (append_items(building, index, bytes, level) < 0)
            return -1;
        break;
    default: /* STRUCT */
        for (Py_ssize_t i = 0; i < node->count; i++)
            if (append(building, node->parts[i], bytes, level + 1) < 0)
                return -1;
    }
    if (has_offsets(node->kind)) {
        int32_t offset = (int32_t)filled->used;
        memcpy(buffers->values + 4 * (at + 1), &offset, 4);
    }
    if (node->null_branch != NO_BRANCH)
        buffers->valid[at] = 1;
    filled->length++;
    return 0;
}

static PyObject *bits_of(const uint8_t *flags, Py_ssize_t count)
{
    PyObject *found = PyBytes_FromStringAndSize(NULL, (count + 7) / 8);
    if (found == NULL)
        return NULL;
    uint8_t *bits = (uint8_t *)PyBytes_AS_STRING(found);
    memset(bits, 0, (count + 7) / 8);
    for (Py_ssize_t i = 0; i < count; i++)
        bits[i >> 3] |= (uint8_t)(flags[i] << (i & 7));
    return found;
}

static PyObject *bytes_or_none(const uint8_t *data, Py_ssize_t size, int is_there)
{
    if (!is_there)
        return Py_NewRef(Py_None);
    /* An array without values may have no buffer yet. */
    if (data == NULL) {
        PyObject *empty = PyBytes_FromStringAndSize(NULL, size);
        if (empty != NULL)
            memset(PyBytes_AS_STRING(empty), 0, size);
        return empty;
    }
    return PyBytes_FromStringAndSize((const char *)data, size);
}

/* (length, number of nulls, validity, values, data) of a node. */
static PyObject *column_of(const Building *building, Py_ssize_t index)
{
    const Node *node = &building->columns->nodes[index];
    const Buffers *buffers = &building->buffers[index];
    const Filled *filled = &building->filled[index];
    int width = width_of(node->kind), is_offsets = has_offsets(node->kind);
    PyObject *valid = filled->nulls ? bits_of(buffers->valid, filled->length) : Py_NewRef(Py_None);
    PyObject *values = node->kind == BOOLEAN
        ? bits_of(buffers->values, filled->length)
        : bytes_or_none(buffers->values, (filled->length + is_offsets) * width, width > 0);
    PyObject *data
        = bytes_or_none(buffers->data, filled->used, is_offsets && node->kind != LIST && node->kind != MAP);
    PyObject *found = NULL;
    if (valid != NULL && values != NULL && data != NULL)
        found = Py_BuildValue("nnOOO", filled->length, filled->nulls, valid, values, data);
    Py_XDECREF(valid);
    Py_XDECREF(values);
    Py_XDECREF(data);
    return found;
}

typedef struct {
    const uint8_t *data;
    Py_ssize_t size;
} Body;

/* Appends the bodies, and lists the positions of those that are not usual. -1 without memory. */
static Py_ssize_t append_all(Building *building, const Body *bodies, Py_ssize_t count, Py_ssize_t *left)
{
    const Columns *columns = building->columns;
    Py_ssize_t missed = 0;
    Filled *before = PyMem_RawMalloc(columns->count * sizeof(Filled));
    if (before == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        Bytes bytes = {bodies[i].data, bodies[i].data + bodies[i].size};
        memcpy(before, building->filled, columns->count * sizeof(Filled));
        if (append(building, columns->root, &bytes, 0) < 0 || bytes.at != bytes.end) {
            if (building->no_memory) {
                missed = -1;
                break;
            }
            memcpy(building->filled, before, columns->count * sizeof(Filled));
            left[missed++] = i;
        }
    }
    PyMem_RawFree(before);
    return missed;
}

static PyObject *result_of(const Building *building, const Py_ssize_t *left, Py_ssize_t missed)
{
    PyObject *columns = PyList_New(building->columns->count), *positions = PyList_New(missed), *both = NULL;
    if (columns == NULL || positions == NULL)
        goto done;
    for (Py_ssize_t i = 0; i < building->columns->count; i++) {
        PyObject *column = column_of(building, i);
        if (column == NULL)
            goto done;
        PyList_SET_ITEM(columns, i, column);
    }
    for (Py_ssize_t i = 0; i < missed; i++) {
        PyObject *position = PyLong_FromSsize_t(left[i]);
        if (position == NULL)
            goto done;
        PyList_SET_ITEM(positions, i, position);
    }
    both = PyTuple_Pack(2, columns, positions);
done:
    Py_XDECREF(columns);
    Py_XDECREF(positions);
    return both;
}

static PyObject *decode(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Columns *columns = (Columns *)self;
    if (nargs != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "decode(tuple of bodies, offset)");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(args[1]), count = PyTuple_GET_SIZE(args[0]);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    PyObject *result = NULL;
    Building building = {columns, PyMem_RawCalloc(columns->count, sizeof(Buffers)),
                         PyMem_RawCalloc(columns->count, sizeof(Filled)), 0};
    Body *bodies = PyMem_RawMalloc((count ? count : 1) * sizeof(Body));
    Py_ssize_t *left = PyMem_RawMalloc((count ? count : 1) * sizeof(Py_ssize_t));
    if (building.buffers == NULL || building.filled == NULL || bodies == NULL || left == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *body = PyTuple_GET_ITEM(args[0], i);
        if (!PyBytes_Check(body) || offset < 0) {
            PyErr_SetString(PyExc_TypeError, "a body is bytes, and its value begins at an offset in it");
            goto done;
        }
        Py_ssize_t skipped = offset < PyBytes_GET_SIZE(body) ? offset : PyBytes_GET_SIZE(body);
        bodies[i].data = (const uint8_t *)PyBytes_AS_STRING(body) + skipped;
        bodies[i].size = PyBytes_GET_SIZE(body) - skipped;
    }
    Py_ssize_t missed;
    Py_BEGIN_ALLOW_THREADS
    missed = append_all(&building, bodies, count, left);
    Py_END_ALLOW_THREADS
    result = missed < 0 ? PyErr_NoMemory() : result_of(&building, left, missed);
done:
    for (Py_ssize_t i = 0; building.buffers != NULL && i < columns->count; i++) {
        PyMem_RawFree(building.buffers[i].valid);
        PyMem_RawFree(building.buffers[i].values);
        PyMem_RawFree(building.buffers[i].data);
    }
    PyMem_RawFree(building.buffers);
    PyMem_RawFree(building.filled);
    PyMem_RawFree(bodies);
    PyMem_RawFree(left);
    return result;
}

static void deallocate(PyObject *self)
{
    Columns *columns = (Columns *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t i = 0; columns->nodes != NULL && i < columns->count; i++) {
        Node *node = &columns->nodes[i];
        for (Py_ssize_t j = 0; node->texts != NULL && j < node->symbols; j++)
            PyMem_Free(node->texts[j]);
        PyMem_Free(node->texts);
        PyMem_Free(node->sizes);
        PyMem_Free(node->parts);
    }
    PyMem_Free(columns->nodes);
    type->tp_free(self);
    Py_DECREF(type);
}

static int parse_symbols(Node *node, PyObject *symbols)
{
    node->symbols = PyTuple_GET_SIZE(symbols);
    node->texts = PyMem_Calloc(node->symbols ? node->symbols : 1, sizeof(char *));
    node->sizes = PyMem_Calloc(node->symbols ? node->symbols : 1, sizeof(Py_ssize_t));
    if (node->texts == NULL || node->sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < node->symbols; i++) {
        PyObject *symbol = PyTuple_GET_ITEM(symbols, i);
        const char *text = PyUnicode_Check(symbol) ? PyUnicode_AsUTF8AndSize(symbol, &node->sizes[i]) : NULL;
        if (text == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a symbol is text");
            return -1;
        }
        node->texts[i] = PyMem_Malloc(node->sizes[i] + 1);
        if (node->texts[i] == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(node->texts[i], text, node->sizes[i]);
    }
    return 0;
}

static int has_parts(const Node *node)
{
    switch (node->kind) {
    case LIST:
        return node->count == 1;
    case MAP:
        return node->count == 2;
    case STRUCT:
        return 1;
    default:
        return node->count == 0;
    }
}

/* Fills a node from (kind, parts, null branch, size, digits, symbols). A part comes before its whole, so that no type
   contains itself. 0, or -1 with an exception. */
static int parse(Node *node, PyObject *given, Py_ssize_t index)
{
    PyObject *parts, *symbols;
    int digits;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a node is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "iO!iniO!", &node->kind, &PyTuple_Type, &parts, &node->null_branch, &node->size,
                          &digits, &PyTuple_Type, &symbols))
        return -1;
    node->count = PyTuple_GET_SIZE(parts);
    if (node->kind < 0 || node->kind >= KINDS || !has_parts(node) || node->null_branch < NO_BRANCH
        || node->null_branch > 2 || (node->kind == NOTHING) != (node->null_branch == 2) || digits < 0
        || digits > MAX_DIGITS || node->size < -1 || (node->size < 0 && node->kind == FIXED)) {
        PyErr_SetString(PyExc_ValueError, "no such node");
        return -1;
    }
    node->limit = 1;
    for (int i = 0; i < digits; i++)
        node->limit *= 10;
    node->parts = PyMem_New(Py_ssize_t, node->count ? node->count : 1);
    if (node->parts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < node->count; i++) {
        node->parts[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(parts, i));
        if (!PyErr_Occurred() && (node->parts[i] < 0 || node->parts[i] >= index))
            PyErr_SetString(PyExc_ValueError, "a part comes before its whole");
        if (PyErr_Occurred())
            return -1;
    }
    return parse_symbols(node, symbols);
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *nodes;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "Columns(nodes)");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &nodes))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(nodes);
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "the last node is the root");
        return NULL;
    }
    Columns *self = (Columns *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->root = count - 1;
    self->count = count;
    self->nodes = PyMem_Calloc(count, sizeof(Node));
    if (self->nodes == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse(&self->nodes[i], PyTuple_GET_ITEM(nodes, i), i) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL,
     "decode(bodies, offset): for each node (length, nulls, validity, values or offsets, data), and the positions of "
     "the bodies that Python has to decode. The last node is the root."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "Columns(nodes): decodes bodies. A node is (kind, parts, null branch, size, digits, symbols)."},
    {Py_tp_new, create},
    {Py_tp_dealloc, deallocate},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "rmqio.serde.avro._bulk.Columns",
    .basicsize = sizeof(Columns),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

PyObject *columns_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
