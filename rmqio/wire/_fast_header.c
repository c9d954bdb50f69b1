/* The JSON header of a usual answer, in C: there is one for each request.

   Usual is what brokers write: no white space, text of printable ASCII without escapes, whole numbers, and text as the
   value of every field. `command._read_json` takes anything else, so that what is refused, and with which words, is
   written down there. */

#include "_fast.h"

#include <stdint.h>
#include <string.h>

enum {
    MAX_DIGITS = 18, /* of which every number fits an int64 */
};

typedef struct {
    const char *at;
    const char *end;
} Cursor;

typedef struct {
    const char *start; /* NULL: there is none */
    Py_ssize_t size;
} Text;

/* The functions below return 0, or NULL, when they cannot: nothing that is usual, or no memory. */

static int
take(Cursor *from, char expected)
{
    if (from->at == from->end || *from->at != expected) {
        return 0;
    }
    from->at++;
    return 1;
}

static int
take_text(Cursor *from, Text *text)
{
    if (!take(from, '"')) {
        return 0;
    }
    /* Two loops, each many bytes a step: the ids of a batch are a text of 16 KB. */
    const char *end = memchr(from->at, '"', (size_t)(from->end - from->at));
    if (end == NULL) {
        return 0;
    }
    text->start = from->at;
    text->size = end - from->at;
    from->at = end + 1;
    uint8_t unusual = 0;
    for (Py_ssize_t i = 0; i < text->size; i++) {
        uint8_t byte = (uint8_t)text->start[i];
        unusual |= (uint8_t)(byte - ' ') > '~' - ' ';
        unusual |= byte == '\\';
    }
    return !unusual;
}

/* More digits, a point or an exponent stay after the number, where the caller expects none. */
static int
take_number(Cursor *from, int64_t *number)
{
    int negative = take(from, '-');
    const char *start = from->at;
    int64_t value = 0;
    while (from->at < from->end && *from->at >= '0' && *from->at <= '9' && from->at - start < MAX_DIGITS) {
        value = 10 * value + (*from->at++ - '0');
    }
    Py_ssize_t digits = from->at - start;
    *number = negative ? -value : value;
    return digits != 0 && (digits == 1 || *start != '0');
}

static int
is(Text text, const char *name)
{
    return text.size == (Py_ssize_t)strlen(name) && memcmp(text.start, name, (size_t)text.size) == 0;
}

static PyObject *
text_object(Text text)
{
    return text.start == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeASCII(text.start, text.size, NULL);
}

static int
take_field(Cursor *from, PyObject *fields)
{
    Text name, value;
    if (!take_text(from, &name) || !take(from, ':') || !take_text(from, &value)) {
        return 0;
    }
    PyObject *key = text_object(name);
    PyObject *item = key == NULL ? NULL : text_object(value);
    int done = item != NULL && PyDict_SetItem(fields, key, item) == 0;
    Py_XDECREF(key);
    Py_XDECREF(item);
    return done;
}

static int
take_fields(Cursor *from, PyObject *fields)
{
    PyDict_Clear(fields); /* of a name that comes twice the last counts */
    if (!take(from, '{')) {
        return 0;
    }
    if (take(from, '}')) {
        return 1;
    }
    do {
        if (!take_field(from, fields)) {
            return 0;
        }
    } while (take(from, ','));
    return take(from, '}');
}

typedef struct {
    int64_t code, opaque, flag, version;
    Text remark, language;
    PyObject *fields;
} Header;

static int
take_member(Cursor *from, Header *header)
{
    Text name, ignored;
    int64_t ignored_number;
    if (!take_text(from, &name) || !take(from, ':')) {
        return 0;
    }
    if (is(name, "code")) {
        return take_number(from, &header->code);
    }
    if (is(name, "opaque")) {
        return take_number(from, &header->opaque);
    }
    if (is(name, "flag")) {
        return take_number(from, &header->flag);
    }
    if (is(name, "version")) {
        return take_number(from, &header->version);
    }
    if (is(name, "remark")) {
        return take_text(from, &header->remark);
    }
    if (is(name, "language")) {
        return take_text(from, &header->language);
    }
    if (is(name, "extFields")) {
        return take_fields(from, header->fields);
    }
    return from->at < from->end && *from->at == '"' ? take_text(from, &ignored) : take_number(from, &ignored_number);
}

static int
take_header(Cursor *from, Header *header)
{
    if (!take(from, '{')) {
        return 0;
    }
    do {
        if (!take_member(from, header)) {
            return 0;
        }
    } while (take(from, ','));
    return take(from, '}') && from->at == from->end;
}

const char read_usual_header_doc[] = PyDoc_STR(
"read_usual_header(data) -> tuple | None\n\n"
"Code, fields, opaque, flag, remark, language and version of a JSON header; None for one that is not usual.");

PyObject *
read_usual_header(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "read_usual_header takes bytes");
        return NULL;
    }
    Cursor from = {PyBytes_AS_STRING(data), PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data)};
    Header header = {.fields = PyDict_New()};
    if (header.fields == NULL) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (take_header(&from, &header)) {
        PyObject *remark = text_object(header.remark);
        PyObject *language = text_object(header.language);
        if (remark != NULL && language != NULL) {
            answer = Py_BuildValue("LOLLOOL", (long long)header.code, header.fields, (long long)header.opaque,
                                   (long long)header.flag, remark, language, (long long)header.version);
        }
        Py_XDECREF(remark);
        Py_XDECREF(language);
    }
    Py_DECREF(header.fields);
    if (answer == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return answer;
}
