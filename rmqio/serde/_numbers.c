/* Looks for numbers of JSON that a double may not give back, faster than a decoder could call Python for each. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

enum {
    SURE_DIGITS = 15,  /* a double gives back each number of them, and numbers of one digit more below 2**52 units */
    SURE_EXPONENT = 2, /* digits: with them, no number is beyond a double's range, or has fewer digits there, */
    SURE_LENGTH = 200, /* unless it has more digits and zeros: 1e-99 with 200 zeros before it is above 1e-300 */
};

#define DIGITS ['0'] = true, ['1'] = true, ['2'] = true, ['3'] = true, ['4'] = true, ['5'] = true, ['6'] = true, \
    ['7'] = true, ['8'] = true, ['9'] = true
static const bool is_digit[256] = {DIGITS};
static const bool is_part[256] = {DIGITS, ['.'] = true};
static const bool is_e[256] = {['e'] = true, ['E'] = true};
/* Behind a number; behind the 550e8400 of a UUID, there is something else. */
static const bool is_end[256] = {[','] = true, [']'] = true, ['}'] = true, [' '] = true, ['\t'] = true, ['\r'] = true,
    ['\n'] = true};

/* Whether digits and points, from `start` to before `end`, may be a number that is not exact, or its exponent. */
static bool
is_long(const unsigned char *text, Py_ssize_t length, Py_ssize_t start, Py_ssize_t end)
{
    bool has_e = end < length && is_e[text[end]];
    if (end < length && !is_end[text[end]] && !has_e) {
        return false;
    }
    if (end - start > SURE_DIGITS) {
        Py_ssize_t first = start, digits = 0, points = 0;
        while (first < end && (text[first] == '0' || text[first] == '.')) {
            points += text[first++] == '.';
        }
        for (Py_ssize_t at = first; at < end; at++) {
            digits += is_digit[text[at]];
        }
        points += end - first - digits;
        bool is_sure = end - start <= SURE_LENGTH &&
            (digits <= SURE_DIGITS || (digits == SURE_DIGITS + 1 && text[first] < '4'));
        if (!is_sure && (points > 0 || has_e)) {
            return true;
        }
    }
    Py_ssize_t before = start - 1;
    if (before > 0 && (text[before] == '-' || text[before] == '+')) {
        before--;
    }
    return end - start > SURE_EXPONENT && before > 0 && is_e[text[before]] && is_part[text[before - 1]];
}

static bool
has_long(const unsigned char *text, Py_ssize_t length)
{
    /* What is looked for has three digits and points, one of them at a place that is a step away from the last. */
    for (Py_ssize_t at = SURE_EXPONENT; at < length; at += SURE_EXPONENT + 1) {
        if (!is_part[text[at]]) {
            continue;
        }
        Py_ssize_t start = at;
        while (start > 0 && is_part[text[start - 1]]) {
            start--;
        }
        while (at < length && is_part[text[at]]) {
            at++;
        }
        if (is_long(text, length, start, at)) {
            return true;
        }
    }
    return false;
}

PyDoc_STRVAR(may_be_rounded_doc,
"may_be_rounded(text)\n\n"
"Returns whether JSON, as bytes or text, may have a number with a point or an exponent that is not a double's.");

static PyObject *
may_be_rounded(PyObject *Py_UNUSED(module), PyObject *text)
{
    if (PyUnicode_Check(text)) {
        Py_ssize_t length;
        const char *utf8 = PyUnicode_AsUTF8AndSize(text, &length);
        if (utf8 == NULL) { /* half of a surrogate pair */
            PyErr_Clear();
            Py_RETURN_TRUE;
        }
        return PyBool_FromLong(has_long((const unsigned char *)utf8, length));
    }
    Py_buffer view;
    if (PyObject_GetBuffer(text, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    bool found = has_long(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyBool_FromLong(found);
}

static PyMethodDef methods[] = {
    {"may_be_rounded", may_be_rounded, METH_O, may_be_rounded_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef numbers_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rmqio.serde._numbers",
    .m_doc = "Numbers of JSON. Optional.",
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__numbers(void)
{
    return PyModuleDef_Init(&numbers_module);
}
