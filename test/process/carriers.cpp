// Ranks of one job, some as threads of one process: what carries their messages differs from pair
// to pair. usage: carriers FIRST LAST SIZE STORE (ranks FIRST to LAST, without the latter)
#include <cmath>
#include <thread>
#include <vector>

#include "process/rank.h"

using namespace rank_test;

namespace {

void sums(tutti_comm* comm, int size) {
    for (int round = 0; round < 50; ++round)
        for (const std::size_t count : {1ul, 100ul, 100'000ul}) {
            std::vector<float> x(count, static_cast<float>(tutti_comm_rank(comm) + round));
            need(tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM), "sum");
            const auto wanted = static_cast<float>(size * round + size * (size - 1) / 2);
            require(x.front() == wanted && x.back() == wanted, "wrong sum");
            need(tutti_barrier(comm), "barrier");
        }
}

void take_part(int rank, const std::string& size, const std::string& store) {
    tutti_config* config = nullptr;
    need(tutti_config_create(&config), "config");
    need(tutti_config_set(config, "rank", std::to_string(rank).c_str()), "rank");
    need(tutti_config_set(config, "size", size.c_str()), "size");
    need(tutti_config_set(config, "store", store.c_str()), "store");
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(config, &comm), "create");
    tutti_config_destroy(config);
    sums(comm, std::stoi(size));
    std::printf("rank %d: allreduce of 2 takes %s\n", rank,
                tutti_comm_algorithm(comm, "allreduce", 2, TUTTI_FLOAT32, TUTTI_SUM));
    need(tutti_comm_destroy(comm), "destroy");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    std::vector<std::thread> threads;
    for (int rank = std::stoi(argv[1]); rank < std::stoi(argv[2]); ++rank)
        threads.emplace_back(take_part, rank, std::string(argv[3]), std::string(argv[4]));
    for (std::thread& thread : threads) thread.join();
    return 0;
}
