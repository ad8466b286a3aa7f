/**
 * @file tutti.hpp
 * @brief A thin RAII layer over tutti.h for C++20: header only, errors are exceptions.
 *
 *     tutti::Communicator comm;                      // from the environment, as tutti-run sets it
 *     std::vector<float> gradient = …;
 *     comm.allreduce(gradient);                      // sum, in place
 *     tutti::Request r = comm.iallreduce(gradient);  // r.wait(), or its destructor waits
 *
 * Buffers are contiguous ranges (vector, array, span) of a standard integer, float, double or
 * std::byte; other element types (16- and 8-bit floats) go through the C API. Counts follow from
 * the ranges' sizes, which are checked. A range that a rank does not use (out of a gather on ranks
 * other than root) may be empty, such as std::span<float>(). The rules of tutti.h for threads,
 * aliasing and deadlines hold here too.
 */
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP

#include <cstddef>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/buffers.hpp"
#include "tutti/handles.hpp"
#include "tutti/plans.hpp"
#include "tutti/recovery.hpp"
#include "tutti/tutti.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// This rank's membership of a group. Move only; the destructor leaves in order and never hangs.
/// opts NULL means defaults throughout.
class Communicator : public Plans<Communicator>, public Recovery<Communicator> {
public:
    /// Joins the job that the environment describes.
    Communicator() : Communicator(static_cast<const tutti_config*>(nullptr)) {}
    explicit Communicator(const Config& config) : Communicator(config.get()) {}

    int rank() const { return tutti_comm_rank(get()); }
    int size() const { return tutti_comm_size(get()); }
    int local_rank() const { return tutti_comm_local_rank(get()); }
    int local_size() const { return tutti_comm_local_size(get()); }
    int ring_count() const { return tutti_comm_ring_count(get()); }
    int host_count() const { return tutti_comm_host_count(get()); }
    /// The index of the rank's host; -1 if there is no such rank.
    int host_of(int rank) const { return tutti_comm_host_of(get(), rank); }
    /// From any thread: fails every operation on all ranks.
    void abort() { check(tutti_comm_abort(get())); }
    tutti_comm* get() const { return comm_.get(); }

    /// Device memory: as the C functions of the same names.
    void set_device_stream(void* stream) { check(tutti_comm_set_device_stream(get(), stream)); }
    void use_device(int device) { check(tutti_comm_use_device(get(), device)); }
    void sync_calc_stream(void* stream) { check(tutti_sync_calc_stream(get(), stream)); }
    void sync_comm_stream(void* stream) { check(tutti_sync_comm_stream(get(), stream)); }
    void sync(int64_t timeout_ms = -1) { check(tutti_comm_sync(get(), timeout_ms)); }

    /// Collective: a communicator of the ranks that give the same color (>= 0), ranked by key, then
    /// by their rank here; nullopt for a color < 0.
    std::optional<Communicator> split(int color, int key = 0) {
        tutti_comm* part = nullptr;
        check(tutti_comm_split(get(), color, key, &part));
        return part ? std::optional(Communicator(part)) : std::nullopt;
    }
    /// Collective: a communicator of this rank's host.
    Communicator split_host(int key = 0) {
        tutti_comm* part = nullptr;
        check(tutti_comm_split_host(get(), key, &part));
        return Communicator(part);
    }
    /// Collective: another communicator of the same ranks, with its own order of operations.
    Communicator dup() {
        tutti_comm* copy = nullptr;
        check(tutti_comm_dup(get(), &copy));
        return Communicator(copy);
    }

    /// A buffer registered with the networks; it may outlive this communicator.
    template <Element T>
    Memory<T> allocate(std::size_t count) {
        return Memory<T>(get(), count);
    }

    /// A sum that first multiplies this rank's contribution by scalar, without rounding; for
    /// buffers of scalar's type on this communicator. All ranks make them in the same order.
    template <Element T>
    Operator premul_sum(T scalar) {
        tutti_op op = -1;
        check(tutti_op_create_premul_sum(get(), &scalar, dtype_of<T>, &op));
        return Operator(op);
    }

    /// Sends to rank dest; its receive has the same tag.
    template <InputBuffer I>
    void send(const I& in, int dest, int tag = 0) {
        check(tutti_send(get(), std::ranges::data(in), std::ranges::size(in), detail::dtype_in<I>,
                         dest, tag));
    }
    /// Receives from rank source or TUTTI_ANY_SOURCE; out may be longer than the message.
    template <Buffer O>
    tutti_recv_status recv(O&& out, int source, int tag = 0) {
        tutti_recv_status status{};
        check(tutti_recv(get(), std::ranges::data(out), std::ranges::size(out), detail::dtype_in<O>,
                         source, tag, &status));
        return status;
    }
    template <InputBuffer I>
    [[nodiscard]] Request isend(const I& in, int dest, int tag = 0,
                                const tutti_call_opts* opts = nullptr) {
        tutti_request* r = nullptr;
        check(tutti_isend(get(), std::ranges::data(in), std::ranges::size(in), detail::dtype_in<I>,
                          dest, tag, opts, &r));
        return Request(r);
    }
    /// status, if any, outlives the request and is written before it is done.
    template <Buffer O>
    [[nodiscard]] Request irecv(O&& out, int source, int tag = 0,
                                tutti_recv_status* status = nullptr,
                                const tutti_call_opts* opts = nullptr) {
        tutti_request* r = nullptr;
        check(tutti_irecv(get(), std::ranges::data(out), std::ranges::size(out),
                          detail::dtype_in<O>, source, tag, status, opts, &r));
        return Request(r);
    }

    /// out[i] = in[i] of all ranks combined, the same bits on every rank.
    template <InputBuffer I, Buffer O>
    void allreduce(const I& in, O&& out, tutti_op op = TUTTI_SUM) {
        run(tutti_allreduce, message(in, out), op);
    }
    /// In place.
    template <Buffer B>
    void allreduce(B&& buffer, tutti_op op = TUTTI_SUM) {
        allreduce(buffer, buffer, op);
    }
    /// Several inputs on this rank (a range of ranges, each of out's size), with one rounding. out
    /// may be one of them. Their number may differ between ranks, except for avg.
    template <InputList L, Buffer O>
    void allreduce_multi(const L& ins, O&& out, tutti_op op = TUTTI_SUM) {
        const auto starts = detail::starts_of(ins, std::ranges::size(out));
        run(tutti_allreduce_multi, multi_arguments<L>(starts, out), op);
    }
    /// As allreduce, but only root's out gets the result; out of other ranks is not used.
    template <InputBuffer I, Buffer O>
    void reduce(const I& in, O&& out, tutti_op op = TUTTI_SUM, int root = 0) {
        run(tutti_reduce, reduce_arguments(in, out, root), op, root);
    }
    /// In place.
    template <Buffer B>
    void reduce(B&& buffer, tutti_op op = TUTTI_SUM, int root = 0) {
        reduce(buffer, buffer, op, root);
    }
    /// Copies root's buffer to every rank's.
    template <Buffer B>
    void broadcast(B&& buffer, int root = 0) {
        check(tutti_broadcast(get(), std::ranges::data(buffer), std::ranges::size(buffer),
                              detail::dtype_in<B>, root));
    }
    /// Returns when every rank has called it.
    void barrier() { check(tutti_barrier(get())); }
    /// name: the operation that begins with it (tutti_ibarrier); if names differ: MISMATCH.
    void barrier(const char* name) {
        tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
        opts.name = name;
        ibarrier(&opts).wait();
    }
    /// out becomes every rank's in, in rank order.
    template <InputBuffer I, Buffer O>
    void allgather(const I& in, O&& out) {
        run(tutti_allgather, allgather_arguments(in, out));
    }
    /// In place: this rank's own block of buffer goes to all.
    template <Buffer B>
    void allgather(B&& buffer) {
        allgather(own_block(buffer), buffer);
    }
    /// in has one block for each rank; out becomes this rank's block of all ranks' in combined.
    template <InputBuffer I, Buffer O>
    void reduce_scatter(const I& in, O&& out, tutti_op op = TUTTI_SUM) {
        run(tutti_reduce_scatter, reduce_scatter_arguments(in, out), op);
    }
    /// In place: the result goes to this rank's own block of buffer.
    template <Buffer B>
    void reduce_scatter(B&& buffer, tutti_op op = TUTTI_SUM) {
        reduce_scatter(buffer, own_block(buffer), op);
    }
    /// out of root becomes every rank's in, in rank order; out of other ranks is not used.
    template <InputBuffer I, Buffer O>
    void gather(const I& in, O&& out, int root = 0) {
        run(tutti_gather, gather_arguments(in, out, root), root);
    }
    /// out becomes this rank's block of root's in; in of other ranks is not used.
    template <InputBuffer I, Buffer O>
    void scatter(const I& in, O&& out, int root = 0) {
        run(tutti_scatter, scatter_arguments(in, out, root), root);
    }
    /// in has one block for each rank, out becomes one from each rank.
    template <InputBuffer I, Buffer O>
    void alltoall(const I& in, O&& out) {
        run(tutti_alltoall, alltoall_arguments(in, out));
    }
    /// In place.
    template <Buffer B>
    void alltoall(B&& buffer) {
        alltoall(buffer, buffer);
    }
    /// out[i] = in[i] of rank 0 … this rank combined.
    template <InputBuffer I, Buffer O>
    void scan(const I& in, O&& out, tutti_op op = TUTTI_SUM) {
        run(tutti_scan, message(in, out), op);
    }
    /// In place.
    template <Buffer B>
    void scan(B&& buffer, tutti_op op = TUTTI_SUM) {
        scan(buffer, buffer, op);
    }
    /// out[i] = in[i] of rank 0 … the rank before combined; rank 0's out stays as it is.
    template <InputBuffer I, Buffer O>
    void exscan(const I& in, O&& out, tutti_op op = TUTTI_SUM) {
        run(tutti_exscan, message(in, out), op);
    }
    /// In place.
    template <Buffer B>
    void exscan(B&& buffer, tutti_op op = TUTTI_SUM) {
        exscan(buffer, buffer, op);
    }

    // The v forms: blocks of different lengths. Displacements are their starts; empty: one after
    // the other.
    /// out becomes every rank's in, in rank order: counts[r] elements from rank r.
    template <InputBuffer I, Buffer O>
    void allgatherv(const I& in, O&& out, Counts counts, Counts displacements = {}) {
        run(tutti_allgatherv, allgatherv_arguments(in, out, counts, displacements));
    }
    /// in has counts[r] elements for each rank r, in rank order; out becomes this rank's, combined.
    template <InputBuffer I, Buffer O>
    void reduce_scatterv(const I& in, O&& out, Counts counts, tutti_op op = TUTTI_SUM) {
        run(tutti_reduce_scatterv, reduce_scatterv_arguments(in, out, counts), op);
    }
    /// out of root becomes every rank's in: counts[r] elements from rank r. out and lists of other
    /// ranks are not used.
    template <InputBuffer I, Buffer O>
    void gatherv(const I& in, O&& out, Counts counts, int root = 0, Counts displacements = {}) {
        run(tutti_gatherv, gatherv_arguments(in, out, counts, root, displacements), root);
    }
    /// out becomes this rank's block of root's in, which has counts[r] elements for each rank r.
    /// in and lists of other ranks are not used.
    template <InputBuffer I, Buffer O>
    void scatterv(const I& in, Counts counts, O&& out, int root = 0, Counts displacements = {}) {
        run(tutti_scatterv, scatterv_arguments(in, counts, out, root, displacements), root);
    }
    /// in has in_counts[r] elements for each rank r, out becomes out_counts[r] from each.
    template <InputBuffer I, Buffer O>
    void alltoallv(const I& in, Counts in_counts, O&& out, Counts out_counts,
                   Counts in_displacements = {}, Counts out_displacements = {}) {
        run(tutti_alltoallv, alltoallv_arguments(in, in_counts, out, out_counts, in_displacements,
                                                 out_displacements));
    }

    // Non-blocking: as above; the buffers must outlive the request, the lists need not.
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iallreduce(const I& in, O&& out, tutti_op op = TUTTI_SUM,
                                     const tutti_call_opts* opts = nullptr) {
        return start(tutti_iallreduce, message(in, out), op, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request iallreduce(B&& buffer, tutti_op op = TUTTI_SUM,
                                     const tutti_call_opts* opts = nullptr) {
        return iallreduce(buffer, buffer, op, opts);
    }
    template <InputList L, Buffer O>
    [[nodiscard]] Request iallreduce_multi(const L& ins, O&& out, tutti_op op = TUTTI_SUM,
                                           const tutti_call_opts* opts = nullptr) {
        const auto starts = detail::starts_of(ins, std::ranges::size(out));
        return start(tutti_iallreduce_multi, multi_arguments<L>(starts, out), op, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request ibroadcast(B&& buffer, int root = 0,
                                     const tutti_call_opts* opts = nullptr) {
        return start(
            tutti_ibroadcast,
            std::tuple(std::ranges::data(buffer), std::ranges::size(buffer), detail::dtype_in<B>),
            root, opts);
    }
    [[nodiscard]] Request ibarrier(const tutti_call_opts* opts = nullptr) {
        return start(tutti_ibarrier, std::tuple(), opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request ireduce(const I& in, O&& out, tutti_op op = TUTTI_SUM, int root = 0,
                                  const tutti_call_opts* opts = nullptr) {
        return start(tutti_ireduce, reduce_arguments(in, out, root), op, root, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request ireduce(B&& buffer, tutti_op op = TUTTI_SUM, int root = 0,
                                  const tutti_call_opts* opts = nullptr) {
        return ireduce(buffer, buffer, op, root, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iallgather(const I& in, O&& out, const tutti_call_opts* opts = nullptr) {
        return start(tutti_iallgather, allgather_arguments(in, out), opts);
    }
    template <Buffer B>
    [[nodiscard]] Request iallgather(B&& buffer, const tutti_call_opts* opts = nullptr) {
        return iallgather(own_block(buffer), buffer, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request ireduce_scatter(const I& in, O&& out, tutti_op op = TUTTI_SUM,
                                          const tutti_call_opts* opts = nullptr) {
        return start(tutti_ireduce_scatter, reduce_scatter_arguments(in, out), op, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request ireduce_scatter(B&& buffer, tutti_op op = TUTTI_SUM,
                                          const tutti_call_opts* opts = nullptr) {
        return ireduce_scatter(buffer, own_block(buffer), op, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request igather(const I& in, O&& out, int root = 0,
                                  const tutti_call_opts* opts = nullptr) {
        return start(tutti_igather, gather_arguments(in, out, root), root, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iscatter(const I& in, O&& out, int root = 0,
                                   const tutti_call_opts* opts = nullptr) {
        return start(tutti_iscatter, scatter_arguments(in, out, root), root, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request ialltoall(const I& in, O&& out, const tutti_call_opts* opts = nullptr) {
        return start(tutti_ialltoall, alltoall_arguments(in, out), opts);
    }
    template <Buffer B>
    [[nodiscard]] Request ialltoall(B&& buffer, const tutti_call_opts* opts = nullptr) {
        return ialltoall(buffer, buffer, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iscan(const I& in, O&& out, tutti_op op = TUTTI_SUM,
                                const tutti_call_opts* opts = nullptr) {
        return start(tutti_iscan, message(in, out), op, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request iscan(B&& buffer, tutti_op op = TUTTI_SUM,
                                const tutti_call_opts* opts = nullptr) {
        return iscan(buffer, buffer, op, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iexscan(const I& in, O&& out, tutti_op op = TUTTI_SUM,
                                  const tutti_call_opts* opts = nullptr) {
        return start(tutti_iexscan, message(in, out), op, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request iexscan(B&& buffer, tutti_op op = TUTTI_SUM,
                                  const tutti_call_opts* opts = nullptr) {
        return iexscan(buffer, buffer, op, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iallgatherv(const I& in, O&& out, Counts counts,
                                      Counts displacements = {},
                                      const tutti_call_opts* opts = nullptr) {
        return start(tutti_iallgatherv, allgatherv_arguments(in, out, counts, displacements), opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request ireduce_scatterv(const I& in, O&& out, Counts counts,
                                           tutti_op op = TUTTI_SUM,
                                           const tutti_call_opts* opts = nullptr) {
        return start(tutti_ireduce_scatterv, reduce_scatterv_arguments(in, out, counts), op, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request igatherv(const I& in, O&& out, Counts counts, int root = 0,
                                   Counts displacements = {},
                                   const tutti_call_opts* opts = nullptr) {
        return start(tutti_igatherv, gatherv_arguments(in, out, counts, root, displacements), root,
                     opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iscatterv(const I& in, Counts counts, O&& out, int root = 0,
                                    Counts displacements = {},
                                    const tutti_call_opts* opts = nullptr) {
        return start(tutti_iscatterv, scatterv_arguments(in, counts, out, root, displacements),
                     root, opts);
    }
    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request ialltoallv(const I& in, Counts in_counts, O&& out, Counts out_counts,
                                     Counts in_displacements = {}, Counts out_displacements = {},
                                     const tutti_call_opts* opts = nullptr) {
        return start(tutti_ialltoallv,
                     alltoallv_arguments(in, in_counts, out, out_counts, in_displacements,
                                         out_displacements),
                     opts);
    }

private:
    friend class Recovery<Communicator>;

    explicit Communicator(tutti_comm* comm) : comm_(comm) {}
    explicit Communicator(const tutti_config* config) {
        tutti_comm* comm = nullptr;
        check(tutti_comm_create(config, &comm));
        comm_.reset(comm);
    }

    template <typename B>
    auto own_block(B& row) const {
        const std::size_t count = std::ranges::size(row) / blocks();
        return std::span(std::ranges::data(row) + block() * count, count);
    }

    template <typename Function, typename Arguments, typename... More>
    void run(Function function, const Arguments& arguments, More... more) {
        std::apply([&](auto... a) { check(function(get(), a..., more...)); }, arguments);
    }
    template <typename Function, typename Arguments, typename... More>
    Request start(Function function, const Arguments& arguments, More... more) {
        tutti_request* r = nullptr;
        std::apply([&](auto... a) { check(function(get(), a..., more..., &r)); }, arguments);
        return Request(r);
    }

    template <typename I, typename O>
    static auto message(const I& in, O& out) {
        return detail::arguments(in, out, detail::block_count(in, out, 1, 1));
    }
    template <typename L, typename O>
    static auto multi_arguments(const std::vector<const void*>& starts, O& out) {
        static_assert(detail::dtype_in<std::ranges::range_value_t<L>> == detail::dtype_in<O>,
                      "inputs and output have different element types");
        void* to = std::ranges::data(out);
        return std::tuple(starts.data(), static_cast<int>(starts.size()), to,
                          std::ranges::size(out), detail::dtype_in<O>);
    }
    template <typename I, typename O>
    auto reduce_arguments(const I& in, O& out, int root) const {
        if (rank() == root) return message(in, out);
        return detail::arguments(in, out, std::ranges::size(in));
    }
    template <typename I, typename O>
    auto allgather_arguments(const I& in, O& out) const {
        return detail::arguments(in, out, detail::block_count(in, out, 1, blocks()));
    }
    template <typename I, typename O>
    auto reduce_scatter_arguments(const I& in, O& out) const {
        return detail::arguments(in, out, detail::block_count(in, out, blocks(), 1));
    }
    template <typename I, typename O>
    auto gather_arguments(const I& in, O& out, int root) const {
        if (rank() == root) return allgather_arguments(in, out);
        return detail::arguments(in, out, std::ranges::size(in));
    }
    template <typename I, typename O>
    auto scatter_arguments(const I& in, O& out, int root) const {
        if (rank() == root) return reduce_scatter_arguments(in, out);
        return detail::arguments(in, out, std::ranges::size(out));
    }
    template <typename I, typename O>
    auto alltoall_arguments(const I& in, O& out) const {
        return detail::arguments(in, out, detail::block_count(in, out, blocks(), blocks()));
    }
    template <typename I, typename O>
    auto allgatherv_arguments(const I& in, O& out, Counts counts, Counts displacements) const {
        detail::check_lists(blocks(), counts, displacements);
        detail::check_own("input", std::ranges::size(in), counts[block()]);
        detail::check_row("output", std::ranges::size(out), counts, displacements);
        const auto [from, to, count, dtype] = detail::arguments(in, out, 0);
        return std::tuple(from, to, counts.data(), detail::or_null(displacements), dtype);
    }
    template <typename I, typename O>
    auto reduce_scatterv_arguments(const I& in, O& out, Counts counts) const {
        detail::check_lists(blocks(), counts, {});
        detail::check_own("output", std::ranges::size(out), counts[block()]);
        detail::check_row("input", std::ranges::size(in), counts, {});
        const auto [from, to, count, dtype] = detail::arguments(in, out, 0);
        return std::tuple(from, to, counts.data(), dtype);
    }
    template <typename I, typename O>
    auto gatherv_arguments(const I& in, O& out, Counts counts, int root,
                           Counts displacements) const {
        if (rank() == root) {
            detail::check_lists(blocks(), counts, displacements);
            detail::check_own("input", std::ranges::size(in), counts[block()]);
            detail::check_row("output", std::ranges::size(out), counts, displacements);
        }
        const auto [from, to, count, dtype] = detail::arguments(in, out, 0);
        return std::tuple(from, std::ranges::size(in), to, detail::or_null(counts),
                          detail::or_null(displacements), dtype);
    }
    template <typename I, typename O>
    auto scatterv_arguments(const I& in, Counts counts, O& out, int root,
                            Counts displacements) const {
        if (rank() == root) {
            detail::check_lists(blocks(), counts, displacements);
            detail::check_own("output", std::ranges::size(out), counts[block()]);
            detail::check_row("input", std::ranges::size(in), counts, displacements);
        }
        const auto [from, to, count, dtype] = detail::arguments(in, out, 0);
        return std::tuple(from, detail::or_null(counts), detail::or_null(displacements), to,
                          std::ranges::size(out), dtype);
    }
    template <typename I, typename O>
    auto alltoallv_arguments(const I& in, Counts in_counts, O& out, Counts out_counts,
                             Counts in_displacements, Counts out_displacements) const {
        detail::check_lists(blocks(), in_counts, in_displacements);
        detail::check_lists(blocks(), out_counts, out_displacements);
        detail::check_row("input", std::ranges::size(in), in_counts, in_displacements);
        detail::check_row("output", std::ranges::size(out), out_counts, out_displacements);
        const auto [from, to, count, dtype] = detail::arguments(in, out, 0);
        return std::tuple(from, in_counts.data(), detail::or_null(in_displacements), to,
                          out_counts.data(), detail::or_null(out_displacements), dtype);
    }

    detail::Handle<tutti_comm, tutti_comm_destroy> comm_;
};

}  // namespace cxx
}  // namespace tutti

#endif
