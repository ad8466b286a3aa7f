/* The functions of cuda_runtime.h over the stand-in for the driver, so that programs of the
 * documents run on every machine. The driver's functions are declared as test/cuda/fake_cuda.cpp
 * defines them. */
#include "cuda_runtime.h"

#include <string.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxPushCurrent_v2(void* context);
int cuMemAlloc_v2(unsigned long long* address, size_t bytes);
int cuMemFree_v2(unsigned long long address);
int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags);
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void* stream);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamSynchronize(void* stream);

cudaError_t cudaSetDevice(int device) {
    void* context;
    cudaError_t status = cuInit(0);
    if (status == 0) status = cuDevicePrimaryCtxRetain(&context, device);
    return status == 0 ? cuCtxPushCurrent_v2(context) : status;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    unsigned long long address;
    const cudaError_t status = cuMemAlloc_v2(&address, bytes);
    if (status == 0) *pointer = (void*)address;
    return status;
}

cudaError_t cudaFree(void* pointer) {
    return cuMemFree_v2((unsigned long long)pointer);
}

/* The stand-in has no memset: it copies from memory of the host, which stays until the program
 * ends. */
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
    void* source;
    const cudaError_t status = cuMemHostAlloc(&source, bytes, 0);
    if (status != 0) return status;
    memset(source, value, bytes);
    return cuMemcpyAsync((unsigned long long)pointer, (unsigned long long)source, bytes, stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cuStreamCreate((void**)stream, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return cuStreamSynchronize(stream);
}
