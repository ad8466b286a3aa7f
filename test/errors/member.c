/* One rank of a job in which something goes wrong, for the script: prints the error of the first call that fails.
 * usage: member join | sum | die     (its place in the job is in the environment) */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tutti/tutti.h"

/* "STATUS RANK TEXT", where RANK is the rank at fault. */
static int tell(tutti_status status) {
    printf("%d %d %s\n", (int)status, tutti_last_error_rank(), tutti_last_error());
    fflush(stdout);
    return 1;
}

static tutti_status sum(tutti_comm* comm) {
    float x[100] = {0};
    return tutti_allreduce(comm, x, x, 100, TUTTI_FLOAT32, TUTTI_SUM);
}

int main(int argc, char** argv) {
    tutti_comm* comm = NULL;
    tutti_status status = tutti_comm_create(NULL, &comm);
    if (argc != 2) return 2;
    if (status != TUTTI_OK) return tell(status);
    if (strcmp(argv[1], "die") == 0) {
        status = sum(comm);
        if (status != TUTTI_OK) return tell(status);
        kill(getpid(), SIGKILL);
    }
    while (strcmp(argv[1], "sum") == 0) {
        status = sum(comm);
        if (status != TUTTI_OK) return tell(status);
    }
    return tutti_comm_destroy(comm) != TUTTI_OK;
}
