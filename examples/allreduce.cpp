// A blocking and a non-blocking sum over all ranks.  tutti-run -n 4 ./allreduce_cpp
#include <cstdio>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
    try {
        tutti::Communicator comm;
        const int rank = comm.rank(), size = comm.size();

        std::vector<float> values = {static_cast<float>(rank), 1.0F,
                                     2.0F * static_cast<float>(rank)};
        comm.allreduce(values);

        std::vector<double> largest(1000, rank);
        tutti::Request request = comm.iallreduce(largest, TUTTI_MAX);
        // The program can compute here; the vector belongs to the request until wait() returns.
        request.wait();

        std::printf("rank %d of %d: %g %g %g, largest %g\n", rank, size, values[0], values[1],
                    values[2], largest[0]);
    } catch (const tutti::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
