/**
 * @file plans.hpp
 * @brief Persistent operations of Communicator (tutti.hpp). Not meant to be included alone.
 */
#ifndef TUTTI_PLANS_HPP
#define TUTTI_PLANS_HPP

#include <cstddef>

#include "tutti/buffers.hpp"
#include "tutti/handles.hpp"
#include "tutti/tutti.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// A base of Communicator: its get() is the tutti_comm.
template <class Communicator>
class Plans {
public:
    // Persistent forms, collective: Plan p = comm.plan_allreduce<float>(1000); p.run(buffer);
    // count is as in the C API: of one block, if a buffer holds one block for each rank.
    template <Element T>
    Plan plan_allreduce(std::size_t count, tutti_op op = TUTTI_SUM,
                        const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_allreduce, count, count, count, dtype_of<T>, op, opts);
    }
    /// Run it with a range of that many ranges.
    template <Element T>
    Plan plan_allreduce_multi(std::size_t inputs, std::size_t count, tutti_op op = TUTTI_SUM,
                              const tutti_call_opts* opts = nullptr) {
        tutti_plan* plan = nullptr;
        check(tutti_plan_allreduce_multi(comm(), static_cast<int>(inputs), count, dtype_of<T>, op,
                                         opts, &plan));
        return {plan, count, count, dtype_of<T>, inputs};
    }
    template <Element T>
    Plan plan_broadcast(std::size_t count, int root = 0, const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_broadcast, count, count, count, dtype_of<T>, root, opts);
    }
    Plan plan_barrier(const tutti_call_opts* opts = nullptr) {
        return bound<std::byte>(tutti_plan_barrier, 0, 0, opts);
    }
    template <Element T>
    Plan plan_reduce(std::size_t count, tutti_op op = TUTTI_SUM, int root = 0,
                     const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_reduce, count, me() == root ? count : Plan::any, count,
                        dtype_of<T>, op, root, opts);
    }
    template <Element T>
    Plan plan_allgather(std::size_t count, const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_allgather, count, blocks() * count, count, dtype_of<T>, opts);
    }
    template <Element T>
    Plan plan_reduce_scatter(std::size_t count, tutti_op op = TUTTI_SUM,
                             const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_reduce_scatter, blocks() * count, count, count, dtype_of<T>, op,
                        opts);
    }
    template <Element T>
    Plan plan_gather(std::size_t count, int root = 0, const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_gather, count, me() == root ? blocks() * count : Plan::any,
                        count, dtype_of<T>, root, opts);
    }
    template <Element T>
    Plan plan_scatter(std::size_t count, int root = 0, const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_scatter, me() == root ? blocks() * count : Plan::any, count,
                        count, dtype_of<T>, root, opts);
    }
    template <Element T>
    Plan plan_alltoall(std::size_t count, const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_alltoall, blocks() * count, blocks() * count, count, dtype_of<T>,
                        opts);
    }
    template <Element T>
    Plan plan_scan(std::size_t count, tutti_op op = TUTTI_SUM,
                   const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_scan, count, count, count, dtype_of<T>, op, opts);
    }
    template <Element T>
    Plan plan_exscan(std::size_t count, tutti_op op = TUTTI_SUM,
                     const tutti_call_opts* opts = nullptr) {
        return bound<T>(tutti_plan_exscan, count, me() > 0 ? count : Plan::any, count, dtype_of<T>,
                        op, opts);
    }
    /// Blocks of different lengths: the plan's buffers end at the end of their last blocks.
    template <Element T>
    Plan plan_allgatherv(Counts counts, Counts displacements = {},
                         const tutti_call_opts* opts = nullptr) {
        const std::size_t row = row_of(counts, displacements);
        return bound<T>(tutti_plan_allgatherv, counts[block()], row, counts.data(),
                        detail::or_null(displacements), dtype_of<T>, opts);
    }
    template <Element T>
    Plan plan_reduce_scatterv(Counts counts, tutti_op op = TUTTI_SUM,
                              const tutti_call_opts* opts = nullptr) {
        const std::size_t row = row_of(counts, {});
        return bound<T>(tutti_plan_reduce_scatterv, row, counts[block()], counts.data(),
                        dtype_of<T>, op, opts);
    }
    /// Only the root's lists are used; count is this rank's own.
    template <Element T>
    Plan plan_gatherv(std::size_t count, Counts counts, int root = 0, Counts displacements = {},
                      const tutti_call_opts* opts = nullptr) {
        const std::size_t row = me() == root ? row_of(counts, displacements) : Plan::any;
        return bound<T>(tutti_plan_gatherv, count, row, count, detail::or_null(counts),
                        detail::or_null(displacements), dtype_of<T>, root, opts);
    }
    template <Element T>
    Plan plan_scatterv(Counts counts, std::size_t count, int root = 0, Counts displacements = {},
                       const tutti_call_opts* opts = nullptr) {
        const std::size_t row = me() == root ? row_of(counts, displacements) : Plan::any;
        return bound<T>(tutti_plan_scatterv, row, count, detail::or_null(counts),
                        detail::or_null(displacements), count, dtype_of<T>, root, opts);
    }
    template <Element T>
    Plan plan_alltoallv(Counts in_counts, Counts out_counts, Counts in_displacements = {},
                        Counts out_displacements = {}, const tutti_call_opts* opts = nullptr) {
        const std::size_t in_row = row_of(in_counts, in_displacements);
        const std::size_t out_row = row_of(out_counts, out_displacements);
        return bound<T>(tutti_plan_alltoallv, in_row, out_row, in_counts.data(),
                        detail::or_null(in_displacements), out_counts.data(),
                        detail::or_null(out_displacements), dtype_of<T>, opts);
    }

protected:
    /// The number of blocks in a buffer with one block for each rank.
    std::size_t blocks() const { return static_cast<std::size_t>(tutti_comm_size(comm())); }
    std::size_t block() const { return static_cast<std::size_t>(me()); }

private:
    tutti_comm* comm() const { return static_cast<const Communicator*>(this)->get(); }
    int me() const { return tutti_comm_rank(comm()); }
    std::size_t row_of(Counts counts, Counts displacements) const {
        detail::check_lists(blocks(), counts, displacements);
        return detail::row_end(counts, displacements);
    }
    template <Element T, typename Function, typename... Arguments>
    Plan bound(Function function, std::size_t in_count, std::size_t out_count,
               Arguments... arguments) {
        tutti_plan* plan = nullptr;
        check(function(comm(), arguments..., &plan));
        return {plan, in_count, out_count, dtype_of<T>};
    }
};

}  // namespace cxx
}  // namespace tutti

#endif
