/* Preloaded before the library's own: a reduce_scatter that leaves its output as it was. */
#include "tutti/tutti.h"

tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                  tutti_dtype dtype, tutti_op op) {
    (void)comm;
    (void)in;
    (void)out;
    (void)count;
    (void)dtype;
    (void)op;
    return TUTTI_OK;
}
