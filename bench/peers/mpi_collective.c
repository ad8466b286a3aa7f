/* Times an operation of MPI, in place, float32, the way tutti-bench does for tutti: see
 * contestants.py. usage: mpi_collective allreduce|broadcast|exchange BYTES ITERATIONS WARMUP
 * exchange: two ranks send each other a message at once, which shows what both directions carry
 * together. Rank 0 prints the median over the iterations of an operation's time, in microseconds.
 * Short operations are timed in batches: the clock reads around each operation would be a large
 * part of its time. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { small_bytes = 64 * 1024, small_batch = 100, max_samples = 100000 };

static int rank = 0;
static int size = 0;
static float* data = NULL;
static float* received = NULL; /* exchange's alone */
static int count = 0;

static void fail(const char* what) {
    fprintf(stderr, "mpi_collective: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void allreduce(void) {
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static float sum_of(int i) {
    return (float)(size * (size - 1) / 2 + size * (i % 7));
}

static void broadcast(void) {
    MPI_Bcast(data, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static float of_rank_0(int i) {
    return (float)(i % 7);
}

static void exchange(void) {
    MPI_Sendrecv(data, count, MPI_FLOAT, 1 - rank, 0, received, count, MPI_FLOAT, 1 - rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static float of_the_other(int i) {
    return (float)(1 - rank + i % 7);
}

struct operation {
    const char* name;
    void (*run)(void);
    float (*expected)(int i); /* of inputs rank + i % 7 */
    int one_way; /* a rank that only sends would run ahead, so a barrier ends each sample, as it
                    does in tutti-bench */
};

static const struct operation operations[] = {
    {"allreduce", allreduce, sum_of, 0},
    {"broadcast", broadcast, of_rank_0, 1},
    {"exchange", exchange, of_the_other, 0},
};

static const struct operation* find(const char* name) {
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; ++i)
        if (strcmp(operations[i].name, name) == 0) return &operations[i];
    fail("there are allreduce, broadcast and exchange");
    return NULL;
}

static void check_result(const struct operation* operation) {
    for (int i = 0; i < count; ++i) data[i] = (float)(rank + i % 7);
    operation->run();
    const float* results = operation->run == exchange ? received : data;
    for (int i = 0; i < count; ++i)
        if (results[i] != operation->expected(i)) fail("wrong result");
    /* Zeros stay zeros: sums of sums would soon be infinite. */
    for (int i = 0; i < count; ++i) data[i] = 0;
}

static float* allocate(void) {
    void* memory = NULL;
    if (posix_memalign(&memory, 1 << 21, (size_t)count * sizeof(float)) != 0) fail("no memory");
    memset(memory, 0, (size_t)count * sizeof(float));
    return memory;
}

static int by_value(const void* a, const void* b) {
    const double x = *(const double*)a;
    const double y = *(const double*)b;
    return (x > y) - (x < y);
}

static double median_us(const struct operation* operation, int iterations) {
    static double us[max_samples];
    const int batch = (size_t)count * sizeof(float) < small_bytes ? small_batch : 1;
    const int samples = iterations / batch;
    if (samples < 1 || samples > max_samples) fail("too few or too many iterations");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < samples; ++i) {
        const double begin = MPI_Wtime();
        for (int k = 0; k < batch; ++k) operation->run();
        if (operation->one_way) MPI_Barrier(MPI_COMM_WORLD);
        us[i] = (MPI_Wtime() - begin) * 1e6 / batch;
    }
    qsort(us, (size_t)samples, sizeof us[0], by_value);
    return us[samples / 2];
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5) fail("usage: mpi_collective OPERATION BYTES ITERATIONS WARMUP");
    const struct operation* operation = find(argv[1]);
    count = (int)(strtoull(argv[2], NULL, 10) / sizeof(float));
    const int iterations = atoi(argv[3]);
    const int warmup = atoi(argv[4]);
    if (count < 1 || iterations < 1 || warmup < 1) fail("numbers must be positive");
    if (operation->run == exchange && size != 2) fail("an exchange is between two ranks");

    data = allocate();
    received = allocate();
    check_result(operation);
    for (int i = 0; i < warmup; ++i) operation->run();

    const double mine_us = median_us(operation, iterations);
    double slowest_us = 0;
    MPI_Reduce(&mine_us, &slowest_us, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.4f\n", slowest_us);
    free(received);
    free(data);
    MPI_Finalize();
    return 0;
}
