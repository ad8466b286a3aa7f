/* Every rank gives its rank; every rank gets the sum.  tutti-run -n 4 ./allreduce */
#include <stdio.h>
#include <tutti/tutti.h>

static int fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, tutti_last_error());
    return 1;
}

int main(void) {
    tutti_comm* comm;
    if (tutti_comm_create(NULL, &comm) != TUTTI_OK) return fail("create");
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);

    float values[3] = {(float)rank, 1.0F, 2.0F * (float)rank};
    if (tutti_allreduce(comm, values, values, 3, TUTTI_FLOAT32, TUTTI_SUM) != TUTTI_OK)
        return fail("allreduce");
    printf("rank %d of %d: %g %g %g\n", rank, size, values[0], values[1], values[2]);

    return tutti_comm_destroy(comm) == TUTTI_OK ? 0 : fail("destroy");
}
