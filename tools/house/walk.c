/* Writes down, in order, which functions one cached tutti_allreduce enters on the thread that calls it.
 *
 * usage: tutti-run -n 2 walk FILE
 * The library must have been compiled with -finstrument-functions: it then calls the two functions below. Rank 0
 * writes a line for each entry to FILE: the object that holds the function, and the offset in it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { WARM_UP_CALLS = 100, MOST_ENTRIES = 1 << 20, COUNT = 256 };

static _Thread_local int tracing;
static void* entered[MOST_ENTRIES];
static size_t entries;

__attribute__((visibility("default"))) void __cyg_profile_func_enter(void* function, void* caller) {
    (void)caller;
    if (tracing && entries < MOST_ENTRIES) entered[entries++] = function;
}

__attribute__((visibility("default"))) void __cyg_profile_func_exit(void* function, void* caller) {
    (void)function;
    (void)caller;
}

static void need(tutti_status status, const char* what) {
    if (status == TUTTI_OK) return;
    fprintf(stderr, "walk: %s: %s\n", what, tutti_last_error());
    exit(1);
}

static int write_down(const char* path) {
    FILE* out = fopen(path, "w");
    if (!out) return perror(path), 1;
    for (size_t i = 0; i < entries; ++i) {
        Dl_info info;
        if (!dladdr(entered[i], &info)) continue;
        fprintf(out, "%s %lx\n", info.dli_fname,
                (unsigned long)((char*)entered[i] - (char*)info.dli_fbase));
    }
    return fclose(out);
}

int main(int argc, char** argv) {
    static float values[COUNT];
    tutti_comm* comm = NULL;
    if (argc != 2) return fprintf(stderr, "usage: walk FILE\n"), 2;
    need(tutti_comm_create(NULL, &comm), "create");
    for (int i = 0; i <= WARM_UP_CALLS; ++i) {
        need(tutti_barrier(comm), "barrier");
        tracing = i == WARM_UP_CALLS;
        const tutti_status status =
            tutti_allreduce(comm, values, values, COUNT, TUTTI_FLOAT32, TUTTI_SUM);
        tracing = 0;
        need(status, "allreduce");
    }
    const int failed = tutti_comm_rank(comm) == 0 ? write_down(argv[1]) : 0;
    need(tutti_comm_destroy(comm), "destroy");
    return failed;
}
