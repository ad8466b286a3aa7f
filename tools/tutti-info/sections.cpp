#include "sections.h"

namespace tutti::info {
namespace {

constexpr SectionKind kinds[] = {
    {"build", "version, compiler, what was built in", look_at_build},
    {"cpu", "model, cores, caches, instruction sets of the kernels", look_at_cpu},
    {"numa", "nodes, their cores and memory", look_at_numa},
    {"memory", "total, huge pages, /dev/shm", look_at_memory},
    {"limits", "locked memory, open files, reading other processes", look_at_limits},
    {"interfaces", "network interfaces: addresses, speed, mtu", look_at_interfaces},
    {"rdma", "InfiniBand, RoCE, EFA and Slingshot adapters", look_at_rdma},
    {"gpus", "graphics processors", look_at_gpus},
    {"transports", "what each can go through, or why it cannot", look_at_transports},
    {"launch", "which launcher started it, and how its ranks would meet", look_at_launch},
};

}  // namespace

std::span<const SectionKind> sections() {
    return kinds;
}

}  // namespace tutti::info
