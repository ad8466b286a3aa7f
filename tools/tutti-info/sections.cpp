#include "sections.h"

namespace tutti::info {
namespace {

constexpr SectionKind kinds[] = {
    {"build", "version, compiler, transports that were built", look_at_build},
    {"cpu", "model, cores, caches, instruction sets of the kernels", look_at_cpu},
    {"numa", "nodes, their cores and memory", look_at_numa},
    {"memory", "total, huge pages, /dev/shm", look_at_memory},
    {"limits", "locked memory, open files, reading other processes", look_at_limits},
    {"interfaces", "network interfaces: addresses, speed, mtu", look_at_interfaces},
    {"rdma", "InfiniBand, RoCE, EFA and Slingshot adapters", look_at_rdma},
    {"gpus", "graphics processors", look_at_gpus},
    {"transports", "devices of each transport, or the reason it has none", look_at_transports},
    {"launch", "launcher that started tutti-info, and how its ranks would find each other",
     look_at_launch},
};

}  // namespace

std::span<const SectionKind> sections() {
    return kinds;
}

}  // namespace tutti::info
