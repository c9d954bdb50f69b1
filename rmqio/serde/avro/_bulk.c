/* Decodes many Avro bodies in one call, to Python's values or to the buffers of Arrow's arrays.

   It decodes what is usual and agrees with Python then; everything else it leaves to Python (docs/architecture.md). */

#include "_bulk.h"

static int add_types(PyObject *module)
{
    PyObject *(*makers[])(PyObject *) = {values_type, columns_type};
    const char *names[] = {"Values", "Columns"};
    for (int i = 0; i < 2; i++) {
        PyObject *type = makers[i](module);
        if (type == NULL)
            return -1;
        int failed = PyModule_AddObjectRef(module, names[i], type);
        Py_DECREF(type);
        if (failed < 0)
            return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_types}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_bulk",
    .m_doc = "Decodes many Avro bodies in one call.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__bulk(void)
{
    return PyModuleDef_Init(&definition);
}
