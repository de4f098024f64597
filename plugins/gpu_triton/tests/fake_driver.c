// A stand-in for libcuda: it remembers what was launched, so that the launcher is tested without a GPU.
#include <stdint.h>
#include <string.h>

typedef int CUresult;
static char contexts[4];
static void *current;
static uint64_t log_[16];
static int launches, pushes, attribute;

CUresult cuGetErrorString(CUresult code, const char **text) {
    (void)code;
    *text = "made up";
    return 0;
}
CUresult cuInit(unsigned flags) { return (CUresult)flags; }
CUresult cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < 4 ? 0 : 101;
}
CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &contexts[device];
    return 0;
}
CUresult cuCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}
CUresult cuCtxPushCurrent_v2(void *context) {
    current = context;
    ++pushes;
    return 0;
}
CUresult cuCtxPopCurrent_v2(void **context) {
    *context = current;
    current = 0;
    return 0;
}
CUresult cuModuleLoadData(void **module, const void *image) {
    *module = (void *)image;
    return memcmp(image, "cubin", 5) ? 200 : 0;
}
CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = (void *)(uintptr_t)(0x1000 + strlen(name));
    return 0;
}
CUresult cuFuncSetAttribute(void *function, int name, int value) {
    (void)function;
    attribute = name * 1000000 + value;
    return 0;
}
CUresult cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **params, void **extra) {
    if (x == 13) return 700;  // before the parameters are read: such a kernel has fewer than are remembered
    (void)extra;
    uint64_t seen[] = {(uintptr_t)function, x, y, z, bx, by, bz, shared, (uintptr_t)stream};
    memcpy(log_, seen, sizeof(seen));
    for (int i = 0; i < 4; ++i) log_[9 + i] = *(uint64_t *)params[i];
    log_[13] = ++launches;
    log_[14] = pushes;
    log_[15] = attribute;
    return 0;
}
uint64_t *fake_log(void) { return log_; }
