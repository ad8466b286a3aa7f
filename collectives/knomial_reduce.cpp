#include "collectives/catalog.h"
#include "collectives/trees.h"

namespace tutti {

/// Radix-4 tree reduce in rank order: half the rounds of a binomial tree, up to three messages to a
/// rank in each. Rank 0 is the top, and sends the result on to a root that is not rank 0.
/// Chunks: one a lane. Scratch: one slot a lane. Any rank count ≥ 1, any root. Credits: 1.
/// Generated in O(log n). Cost: ⌈log4 n⌉ rounds of all bytes (+1 unless the root is 0); rank 0
/// receives them up to 3 ⌈log4 n⌉ times, every other rank sends them once.
/// Source: the k-nomial trees of MPICH and Open MPI.
Schedule knomial_reduce(const ScheduleRequest& request) {
    return knomial_tree_reduce(request, 4);
}

}  // namespace tutti
