// Launching a built kernel with as little work as possible: one Python call, one cuLaunchKernel.
//
// Everything that does not change between calls (function, block, grid, kinds of arguments, device) is bound when a
// Kernel is made. A call reads the pointers of its tensors, checks the alignment that the kernel was built for, asks
// torch for the current stream and launches. The driver is opened at run time, so that this builds where no CUDA
// toolkit is installed; a test opens a stand-in instead.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

#define MAX_ARGS 256
#define ALIGNMENT 16

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef void *CUmodule;
typedef void *CUfunction;
typedef void *CUstream;
enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, DEFAULT_SHARED_BYTES = 48 * 1024 };

// The few driver entries used, bound by open().
static struct {
    CUresult (*get_error_string)(CUresult, const char **);
    CUresult (*init)(unsigned);
    CUresult (*device_get)(CUdevice *, int);
    CUresult (*primary_context_retain)(CUcontext *, CUdevice);
    CUresult (*context_get_current)(CUcontext *);
    CUresult (*context_push)(CUcontext);
    CUresult (*context_pop)(CUcontext *);
    CUresult (*module_load_data)(CUmodule *, const void *);
    CUresult (*module_get_function)(CUfunction *, CUmodule, const char *);
    CUresult (*function_set_attribute)(CUfunction, int, int);
    CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              CUstream, void **, void **);
} driver;

static const struct {
    const char *symbol;
    size_t offset;
} ENTRIES[] = {
    {"cuGetErrorString", offsetof(__typeof__(driver), get_error_string)},
    {"cuInit", offsetof(__typeof__(driver), init)},
    {"cuDeviceGet", offsetof(__typeof__(driver), device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(__typeof__(driver), primary_context_retain)},
    {"cuCtxGetCurrent", offsetof(__typeof__(driver), context_get_current)},
    {"cuCtxPushCurrent_v2", offsetof(__typeof__(driver), context_push)},
    {"cuCtxPopCurrent_v2", offsetof(__typeof__(driver), context_pop)},
    {"cuModuleLoadData", offsetof(__typeof__(driver), module_load_data)},
    {"cuModuleGetFunction", offsetof(__typeof__(driver), module_get_function)},
    {"cuFuncSetAttribute", offsetof(__typeof__(driver), function_set_attribute)},
    {"cuLaunchKernel", offsetof(__typeof__(driver), launch_kernel)},
};

static PyObject *data_ptr_name;

static int failed(CUresult code, const char *what) {
    if (code == 0) return 0;
    const char *text = NULL;
    driver.get_error_string(code, &text);
    PyErr_Format(PyExc_RuntimeError, "CUDA error %d in %s: %s", code, what, text ? text : "unknown");
    return 1;
}

static PyObject *open_driver(PyObject *module, PyObject *arg) {
    (void)module;
    const char *path = PyUnicode_AsUTF8(arg);
    if (path == NULL) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return PyErr_Format(PyExc_OSError, "%s", dlerror());
    for (size_t i = 0; i < sizeof(ENTRIES) / sizeof(ENTRIES[0]); ++i) {
        void *entry = dlsym(library, ENTRIES[i].symbol);
        if (entry == NULL) return PyErr_Format(PyExc_OSError, "%s has no %s", path, ENTRIES[i].symbol);
        memcpy((char *)&driver + ENTRIES[i].offset, &entry, sizeof(entry));
    }
    if (failed(driver.init(0), "cuInit")) return NULL;
    Py_RETURN_NONE;
}

static int context_of(int device, CUcontext *context) {
    CUdevice handle;
    if (driver.device_get == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the CUDA driver is not open");
        return -1;
    }
    if (failed(driver.device_get(&handle, device), "cuDeviceGet")) return -1;
    return failed(driver.primary_context_retain(context, handle), "cuDevicePrimaryCtxRetain") ? -1 : 0;
}

// load(cubin, name, shared bytes, device) -> function handle. The module stays loaded until the process ends.
static PyObject *load(PyObject *module, PyObject *args) {
    (void)module;
    const char *cubin, *name;
    Py_ssize_t size;
    int shared, device;
    CUcontext context, previous;
    CUmodule loaded;
    CUfunction function;
    if (!PyArg_ParseTuple(args, "y#sii", &cubin, &size, &name, &shared, &device)) return NULL;
    if (context_of(device, &context) < 0) return NULL;
    if (failed(driver.context_push(context), "cuCtxPushCurrent")) return NULL;
    int bad = failed(driver.module_load_data(&loaded, cubin), "cuModuleLoadData") ||
              failed(driver.module_get_function(&function, loaded, name), "cuModuleGetFunction");
    if (!bad && shared > DEFAULT_SHARED_BYTES)
        bad = failed(driver.function_set_attribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
                     "cuFuncSetAttribute");
    driver.context_pop(&previous);
    return bad ? NULL : PyLong_FromVoidPtr(function);
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    CUfunction function;
    CUcontext context;
    unsigned grid[3], block, shared;
    Py_ssize_t count;
    char kinds[MAX_ARGS];  // p: pointer, a: pointer that must be 16-byte aligned, i: int32, l: int64,
                           // n: the 8 bytes at the address of a tensor of the CPU
    PyObject *device;      // index, as an int object
    PyObject *stream;      // callable(index) -> raw stream
    PyObject *grid_of;     // None, or callable(*arguments) -> (x, y, z)
    PyObject *unaligned;   // None, or callable(*arguments): what runs where a pointer is not aligned
} Kernel;

static int pointer_of(PyObject *arg, uint64_t *out) {
    if (PyLong_Check(arg)) {
        *out = PyLong_AsUnsignedLongLong(arg);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *result = PyObject_CallMethodNoArgs(arg, data_ptr_name);
    if (result == NULL) return -1;
    *out = PyLong_AsUnsignedLongLong(result);
    Py_DECREF(result);
    return PyErr_Occurred() ? -1 : 0;
}

// 0: read, 1: a pointer is not aligned, -1: a Python error is set.
static int read_arguments(Kernel *self, PyObject *const *args, uint64_t *values) {
    for (Py_ssize_t i = 0; i < self->count; ++i) {
        char kind = self->kinds[i];
        if (kind == 'p' || kind == 'a') {
            if (pointer_of(args[i], &values[i]) < 0) return -1;
            if (kind == 'a' && values[i] % ALIGNMENT) return 1;
        } else if (kind == 'n') {
            if (pointer_of(args[i], &values[i]) < 0) return -1;
            memcpy(&values[i], (const void *)(uintptr_t)values[i], sizeof(values[i]));
        } else {
            values[i] = (uint64_t)PyLong_AsLongLong(args[i]);
            if (PyErr_Occurred()) return -1;
        }
    }
    return 0;
}

static int read_grid(Kernel *self, PyObject *const *args, size_t count, unsigned *grid) {
    memcpy(grid, self->grid, sizeof(self->grid));
    if (self->grid_of == Py_None) return 0;
    PyObject *sizes = PyObject_Vectorcall(self->grid_of, args, count, NULL);
    if (sizes == NULL) return -1;
    int read = PyTuple_Check(sizes) && PyArg_ParseTuple(sizes, "III", &grid[0], &grid[1], &grid[2]);
    Py_DECREF(sizes);
    if (!read && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a grid is a tuple of three ints");
    return read ? 0 : -1;
}

static int launch(Kernel *self, unsigned *grid, uint64_t *values) {
    void *params[MAX_ARGS + 2];
    uint64_t scratch = 0;  // Triton's kernels end in pointers to scratch memory, which ours never use
    CUcontext current = NULL, previous;
    PyObject *stream_object = PyObject_CallOneArg(self->stream, self->device);
    if (stream_object == NULL) return -1;
    CUstream stream = (CUstream)(uintptr_t)PyLong_AsUnsignedLongLong(stream_object);
    Py_DECREF(stream_object);
    if (PyErr_Occurred()) return -1;
    for (Py_ssize_t i = 0; i < self->count; ++i) params[i] = &values[i];
    params[self->count] = params[self->count + 1] = &scratch;
    CUresult code;
    Py_BEGIN_ALLOW_THREADS;
    driver.context_get_current(&current);
    if (current != self->context) driver.context_push(self->context);
    code = driver.launch_kernel(self->function, grid[0], grid[1], grid[2], self->block, 1, 1, self->shared, stream,
                                params, NULL);
    if (current != self->context) driver.context_pop(&previous);
    Py_END_ALLOW_THREADS;
    return failed(code, "cuLaunchKernel") ? -1 : 0;
}

static PyObject *kernel_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names) {
    Kernel *self = (Kernel *)object;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    uint64_t values[MAX_ARGS];
    unsigned grid[3];
    if (count != self->count || (names != NULL && PyTuple_GET_SIZE(names) > 0))
        return PyErr_Format(PyExc_TypeError, "the kernel takes %zd positional arguments, not %zd", self->count, count);
    int read = read_arguments(self, args, values);
    if (read < 0) return NULL;
    if (read == 1) {
        if (self->unaligned == Py_None)
            return PyErr_Format(PyExc_ValueError, "the kernel needs pointers aligned to %d bytes", ALIGNMENT);
        return PyObject_Vectorcall(self->unaligned, args, count, NULL);
    }
    if (read_grid(self, args, count, grid) < 0) return NULL;
    if (grid[0] && grid[1] && grid[2] && launch(self, grid, values) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "device", "grid", "block", "shared", "kinds", "stream", "grid_of", "unaligned",
                            NULL};
    unsigned long long function;
    int device;
    unsigned grid[3], block, shared;
    const char *kinds;
    Py_ssize_t count;
    PyObject *stream, *grid_of, *unaligned;
    CUcontext context;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Ki(III)IIs#OOO", names, &function, &device, &grid[0], &grid[1],
                                     &grid[2], &block, &shared, &kinds, &count, &stream, &grid_of, &unaligned))
        return NULL;
    if (count > MAX_ARGS) return PyErr_Format(PyExc_ValueError, "a kernel takes at most %d arguments", MAX_ARGS);
    if (context_of(device, &context) < 0) return NULL;
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = kernel_call;
    self->function = (CUfunction)(uintptr_t)function;
    self->context = context;
    memcpy(self->grid, grid, sizeof(grid));
    self->block = block;
    self->shared = shared;
    self->count = count;
    memcpy(self->kinds, kinds, count);
    self->device = PyLong_FromLong(device);
    self->stream = Py_NewRef(stream);
    self->grid_of = Py_NewRef(grid_of);
    self->unaligned = Py_NewRef(unaligned);
    return (PyObject *)self;
}

static int kernel_traverse(Kernel *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->stream);
    Py_VISIT(self->grid_of);
    Py_VISIT(self->unaligned);
    return 0;
}

static int kernel_clear(Kernel *self) {
    Py_CLEAR(self->stream);
    Py_CLEAR(self->grid_of);
    Py_CLEAR(self->unaligned);
    return 0;
}

static void kernel_dealloc(Kernel *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    kernel_clear(self);
    Py_CLEAR(self->device);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Kernel, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_traverse, kernel_traverse},
    {Py_tp_clear, kernel_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, kernel_members},
    {0, NULL},
};

static PyType_Spec kernel_spec = {
    .name = "armature_launcher.Kernel",
    .basicsize = sizeof(Kernel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = kernel_slots,
};

static PyMethodDef methods[] = {
    {"open", open_driver, METH_O, "open(path): bind the CUDA driver's entries."},
    {"load", load, METH_VARARGS, "load(cubin, name, shared, device) -> function handle."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "armature_launcher", NULL, -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_armature_launcher(void) {
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    PyObject *module = data_ptr_name ? PyModule_Create(&definition) : NULL;
    PyObject *type = module ? PyType_FromSpec(&kernel_spec) : NULL;
    if (type == NULL || PyModule_AddObjectRef(module, "Kernel", type) < 0) return NULL;
    Py_DECREF(type);
    return module;
}
