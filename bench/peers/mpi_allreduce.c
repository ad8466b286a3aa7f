/* Times MPI_Allreduce, in place, float32 sum, the way tutti-bench does for tutti: see
 * compare_openmpi. usage: mpi_allreduce BYTES ITERATIONS WARMUP Rank 0 prints the median over the
 * iterations of an operation's time, in microseconds. Short operations are timed in batches: a
 * clock read around each one would be a good part of what it shows. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { small_bytes = 64 * 1024, small_batch = 100, max_samples = 100000 };

static int by_value(const void* a, const void* b) {
    const double x = *(const double*)a;
    const double y = *(const double*)b;
    return (x > y) - (x < y);
}

static void fail(const char* what) {
    fprintf(stderr, "mpi_allreduce: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void allreduce(float* data, int count) {
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void check_result(float* data, int count) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < count; ++i) data[i] = (float)(rank + i % 7);
    allreduce(data, count);
    for (int i = 0; i < count; ++i)
        if (data[i] != (float)(size * (size - 1) / 2 + size * (i % 7))) fail("wrong sum");
    /* Zeros stay zeros: sums of sums would soon be infinite. */
    for (int i = 0; i < count; ++i) data[i] = 0;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) fail("usage: mpi_allreduce BYTES ITERATIONS WARMUP");
    const int count = (int)(strtoull(argv[1], NULL, 10) / sizeof(float));
    const int iterations = atoi(argv[2]);
    const int warmup = atoi(argv[3]);
    if (count < 1 || iterations < 1 || warmup < 1) fail("arguments must be positive");

    void* memory = NULL;
    if (posix_memalign(&memory, 1 << 21, (size_t)count * sizeof(float)) != 0) fail("no memory");
    float* data = memory;
    check_result(data, count);

    for (int i = 0; i < warmup; ++i) allreduce(data, count);

    const int batch = (size_t)count * sizeof(float) < small_bytes ? small_batch : 1;
    const int samples = iterations / batch;
    if (samples < 1 || samples > max_samples) fail("too few or too many iterations");
    static double us[max_samples];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < samples; ++i) {
        const double begin = MPI_Wtime();
        for (int k = 0; k < batch; ++k) allreduce(data, count);
        us[i] = (MPI_Wtime() - begin) * 1e6 / batch;
    }
    qsort(us, (size_t)samples, sizeof us[0], by_value);

    double slowest = 0;
    MPI_Reduce(&us[samples / 2], &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) printf("%.4f\n", slowest);
    free(memory);
    MPI_Finalize();
    return 0;
}
