/* The variables and functions that a fragment of C in the documents uses without declaring them. A
 * fragment is compiled and not linked. */
#pragma once

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <tutti/trainer.h>
#include <tutti/trainer_parallel.h>
#include <tutti/trainer_sharded.h>
#include <tutti/tutti.h>

extern tutti_comm *comm, **comms;
extern tutti_config* config;
extern tutti_request* request;
extern tutti_trainer* trainer;
extern float *in, *out, *x, **xs;
extern size_t count, n;
extern int rank, size, root, local;

/* Kernels of the program on a stream. */
extern float* gradients;
extern cudaStream_t stream;
void launch_backward(float* gradients, cudaStream_t stream);
void launch_update(const float* gradients, cudaStream_t stream);
