// tutti as a backend of torch.distributed.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "device.h"
#include "dtypes.h"
#include "ephemeral.h"
#include "errors.h"
#include "group.h"
#include "hook.h"
#include "lists.h"
#include "reaper.h"
#include "tensors.h"
#include "work.h"

#define TUTTI_TORCH_AT_LEAST(major, minor) \
    (TORCH_VERSION_MAJOR > (major) ||      \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace tutti_torch {

// Some functions override a virtual function in newer or older versions of torch only. In the other
// versions they are ordinary functions without a caller.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsuggest-override"
#endif

class Backend final : public c10d::Backend {
public:
    using Tensors = std::vector<at::Tensor>;
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Milliseconds = std::chrono::milliseconds;

    struct Options final : c10d::Backend::Options {
        explicit Options(Settings given = {}, Milliseconds limit = kBackendDefaultTimeout)
            : c10d::Backend::Options("tutti", limit), settings(std::move(given)) {}
        c10::intrusive_ptr<c10d::Backend::Options> clone() const {
            return c10::make_intrusive<Options>(*this);
        }
        Settings settings;
    };

    Backend(std::shared_ptr<Group> group, c10::intrusive_ptr<Options> options);
    /// A group that has met nobody yet: reconfigure() makes its communicator. Until then it has
    /// this rank and size.
    Backend(int rank, int size, c10::intrusive_ptr<Options> options);
    ~Backend() override;

    const std::string getBackendName() const override { return "tutti"; }
    /// A copy: older versions of torch write a part's time-out into it.
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() { return options_->clone(); }
    void setTimeout(Milliseconds timeout);
    void addEphemeralTimeout(const Milliseconds& extension) { ephemeral_.add(extension); }
    uint64_t getSequenceNumberForGroup() override;
    void setSequenceNumberForGroup() override {}
    bool supportsSplitting() const { return true; }
    /// The ranks join on the device now, instead of with the first call on it. Collective.
    void eagerConnectSingleDevice(at::Device device) override;
    // startCoalescing always works, but if this is false, batch_isend_irecv keeps a Work for each
    // message. Device messages must be launched together, and newer torch does not tell the device.
    bool supportsCoalescing() const { return on_device_; }
    c10::intrusive_ptr<c10d::Backend> split(
        const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
        const c10::intrusive_ptr<c10d::Backend::Options>& options);
    /// One group of several groups' ranks, which meet in this store. Collective over the new group,
    /// in which this rank has that number. options: the name and the time-out.
    c10::intrusive_ptr<c10d::Backend> merge(
        const c10::intrusive_ptr<c10d::Store>& store,
        const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
        const int& size);
    bool supportsShrinking() const { return true; }
    /// A group without these ranks, which do not call. SHRINK_ABORT ends this group's operations
    /// first. Throws a CallError with PEER_LOST on all other ranks if a rank that is not in the
    /// list is gone, too. Collective over the ranks that are not in the list.
    c10::intrusive_ptr<c10d::Backend> shrink(
        const std::vector<int64_t>& ranks_to_exclude, int shrink_flags = 0,
        const c10::intrusive_ptr<c10d::Backend::Options>& options = nullptr);
    /// Ends the group's operations on all ranks. The ranks that are gone: the same on all others,
    /// which call it.
    std::vector<int> lost_ranks();
#if defined(C10D_BACKEND_HAS_RECONFIGURE)
    bool supportsReconfigure() const override {
        return true;
    }
    /// The handle of this process, which stays valid.
    std::string get_reconfigure_handle() const override;
    /// Makes a communicator of the processes of these handles, with which this group goes on: in
    /// the list's order, or the sorted order of a set. Returns when all of them have called it.
    WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif
#if TUTTI_TORCH_AT_LEAST(2, 7)
    c10d::ErrorType getError();
#endif
    /// The exception of the latest failed call, or the one that ended the group; NULL if none.
    std::exception_ptr last_failure() const {
        return reaper_->last_failure();
    }
    void abort();
    void shutdown();
    /// The hooks run in abort(), and where an operation gets the failure that ended the group.
    bool supportsAbortHooks() const {
        return true;
    }
    void registerAbortHook(int64_t id, std::function<void()> hook) {
        reaper_->hooks().abort.add(id, std::move(hook));
    }
    void unregisterAbortHook(int64_t id) {
        reaper_->hooks().abort.remove(id);
    }
    /// The hooks run on the thread that ends a successful operation. No thread is woken for them:
    /// if nothing waits for a Work, they run when the program polls it, drops it or aborts the
    /// group.
    bool supportsCompletionHooks() const {
        return true;
    }
#if TUTTI_TORCH_AT_LEAST(2, 15)
    void registerCompletionHook(int64_t id, c10d::CompletionHook hook) {
        reaper_->hooks().completion.add(
            id, [hook = std::move(hook)](uint64_t key, std::optional<float> ms) {
                hook({key, ms});
            });
    }
#endif
    void unregisterCompletionHook(int64_t id) {
        reaper_->hooks().completion.remove(id);
    }
    void waitForPendingWorks() override;
    void registerOnCompletionHook(
        std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
    void enableCollectivesTiming() override {
        reaper_->hooks().timing = true;
    }
    void startCoalescing();
    WorkPtr endCoalescing();
    /// From now on groups leave without waiting: a failing rank must not delay the other ranks'
    /// notice of it.
    static void interpreter_ends() {
        ending_ = true;
        close_callbacks();
    }
    /// Collective: a communicator of the same ranks, with its own order of operations.
    std::shared_ptr<Group> duplicate();
    /// The last operations, as JSON lines.
    void dump(int fd);
    // Estimates of time, for the calls that one thread makes between start and end.
    bool supportsTimeEstimation() const {
        return true;
    }
    void startTimeEstimate();
    /// Returns microseconds.
    float endTimeEstimate();
    /// tutti_memory_stats by field.
    std::unordered_map<std::string, uint64_t> getMemoryStats();
    /// For host memory, whose device has no index. Memory of other devices ends with the group.
    bool supportsTensorAlloc(c10::DeviceIndex index) {
        return index < 0;
    }
    /// A zeroed tensor of one dimension, on memory that the transports know. size: elements.
    at::Tensor allocateTensor(long size, at::TensorOptions options);

    WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
    WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
    WorkPtr allreduce_coalesced(Tensors& tensors,
                                const c10d::AllreduceCoalescedOptions& opts) override;
    WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
    WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
    WorkPtr barrier(const c10d::BarrierOptions& opts) override;
    void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

    WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                      const c10d::AllgatherOptions& opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) override;
    WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts);
    WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& opts);
    WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                   const c10d::GatherOptions& opts) override;
    WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
    WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                    const c10d::ScatterOptions& opts) override;
    WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ReduceScatterOptions& opts) override;
    WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& opts);
    WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& opts);
    WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
    WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                              std::vector<int64_t>& output_splits,
                              std::vector<int64_t>& input_splits,
                              const c10d::AllToAllOptions& opts);

    WorkPtr send(Tensors& tensors, int destination, int tag) override;
    WorkPtr recv(Tensors& tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors& tensors, int tag) override;

    // The names of torch before 2.15; newer versions forward them.
    WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override {
        return all_gather_single(output, input, opts);
    }
    WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) override {
        return all_gather_single_coalesced(outputs, inputs, opts);
    }
    WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                               const c10d::GatherOptions& opts) {
        return gather_single(output, input, opts);
    }
    WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& opts) override {
        return reduce_scatter_single(output, input, opts);
    }
    WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& opts) override {
        return reduce_scatter_single_coalesced(outputs, inputs, opts);
    }
    WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                          std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                          const c10d::AllToAllOptions& opts) override {
        return all_to_all_single(output, input, output_splits, input_splits, opts);
    }

private:
    /// One call from its beginning to its Work.
    struct Call {
        std::shared_ptr<Operation> operation;
        c10::intrusive_ptr<Work> work;
        std::shared_ptr<Group> group;
        tutti_call_opts opts;
        bool async;
        bool planned;  ///< it only adds its time to an estimate
        Memory memory() const { return Memory(*operation); }
    };
    struct Kind {
        c10d::OpType type;
        const char* name;      ///< in errors: "all_reduce"
        const char* title;     ///< in profiles: "tutti:all_reduce"
        bool by_host = false;  ///< works in host memory, wherever the tensors are
    };
    /// A message of a batch, which starts once all of the batch are known.
    struct Gathered {
        Call call;
        std::function<tutti_status(tutti_comm*, const tutti_call_opts*, tutti_request**)> starting;
    };
    /// The calls of one thread between startCoalescing and endCoalescing.
    struct Batch {
        std::vector<c10::intrusive_ptr<Work>> works;
        std::vector<Gathered> gathered;
    };
    /// Ends the batch if a call in it throws, because torch does not: later calls are not part of
    /// it.
    class GivesUpBatch {
    public:
        explicit GivesUpBatch(Backend& backend) : backend_(backend) {}
        ~GivesUpBatch() {
            if (std::uncaught_exceptions() == before_) return;
            backend_.drop_batch();
            backend_.break_off_estimate();
        }
        GivesUpBatch(const GivesUpBatch&) = delete;

    private:
        Backend& backend_;
        const int before_ = std::uncaught_exceptions();
    };
    /// The operator of a premultiplied sum, which belongs to one call.
    struct OwnedOp {
        tutti_op op;
        bool owned;
        ~OwnedOp() {
            if (owned) (void)tutti_op_destroy(op);
        }
    };

    /// Starts several calls. If one is refused, still starts the others, because after a mismatch
    /// the same number of calls must fail on every rank. Throws the first refusal at the end.
    class EachStarts {
    public:
        template <typename Function>
        void operator()(Function start_one) {
            try {
                start_one();
            } catch (const CallError&) {
                if (!refused_) refused_ = std::current_exception();
            }
        }
        void done() const {
            if (refused_) std::rethrow_exception(refused_);
        }

    private:
        std::exception_ptr refused_;
    };

    /// In a call's options: < 0 is the communicator's own time-out, 0 none.
    Milliseconds limit_of(Milliseconds asked, const std::shared_ptr<Operation>& call);
    Call begin(const Kind& kind, Milliseconds timeout, bool async, const Tensors& inputs,
               Tensors results);
    /// Chooses the stream by size, so that large calls do not hold up small ones. bytes is the same
    /// on all ranks; unknown_bytes if a rank cannot know the others' sizes.
    template <typename Starting>
    void start(const Call& call, std::size_t bytes, Starting starting);
    template <typename Starting>
    void start_locked(const Call& call, std::size_t bytes, Starting starting);
    /// The next calls of start() carry the name of a list of this many tensors; NULL: none.
    void give_name(Call& call, const ListName* name, std::size_t tensors) const;
    WorkPtr started(Call& call);
    void place(Call& call, c10::Device device);
    /// Runs the function, which may take issuing_. A CallError that it throws is kept for
    /// last_failure() and getError(). Call it without a lock: a failure may call the program.
    template <typename Function>
    auto noting(Function function) -> decltype(function());
    OwnedOp operator_for(const c10d::ReduceOp& op, const Reduction& reduction, at::ScalarType type,
                         const Call& call);
    std::shared_ptr<Group> group() const;
    std::vector<std::shared_ptr<Operation>> ordered_operations();
    void report_to_hook(const Call& call);
    /// Whether this thread estimates.
    bool estimates() const {
        return estimator_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }
    void check_estimate(const Kind& kind, c10::Device device) const;
    void break_off_estimate() {
        if (estimates()) broken_off_ = true;
    }
    void leave();
    void replace_group(std::shared_ptr<Group> made);
    void check_root(int64_t root, const char* operation) const;
    void check_list(std::size_t got, const char* operation, const char* what) const;
    void check_blocks(const at::Tensor& whole, const at::Tensor& block,
                      const char* operation) const;
    void gather_into(Call& call, const Tensors& blocks, const at::Tensor& own);
    void exchange(Call& call, const void* in, const std::vector<std::size_t>& in_counts, void* out,
                  const std::vector<std::size_t>& out_counts, tutti_dtype dtype);
    bool goes_by_device(const at::Tensor& tensor) const;
    WorkPtr receive(Tensors& tensors, int source, int tag, Kind kind);
    /// name: the operation that begins with it, or NULL; MISMATCH if the ranks' names differ.
    WorkPtr barrier(const Kind& kind, const c10d::BarrierOptions& opts, const char* name);
    template <typename Starting>
    WorkPtr message(Call& call, Starting starting);
    void launch_gathered(std::vector<Gathered> all);
    /// This thread's open batch, or NULL.
    Batch* batch() const;
    void drop_batch();
    c10::intrusive_ptr<c10d::Backend> make_part(
        const std::vector<int>& ranks, const c10::intrusive_ptr<c10d::Backend::Options>& options);
    /// The backend of a group that was made from this one's. options: its time-out, or NULL.
    c10::intrusive_ptr<c10d::Backend> made_of(
        std::shared_ptr<Group> part,
        const c10::intrusive_ptr<c10d::Backend::Options>& options) const;
    std::shared_ptr<Operation> post(const Group& group, const at::Tensor& words, int peer, int tag,
                                    bool sending);
    void watch_others(const Group& group, int tag, Milliseconds timeout, bool name_all);
    void report_to_first(const Group& group, int tag, Milliseconds timeout);
    at::Tensor shapes_of_all(const at::Tensor& tensor, const c10d::AllgatherOptions& opts);
    int checked_tag(int tag, const char* operation) const;

    static constexpr std::size_t unknown_bytes = 0;
    // Tags from here on are the backend's own.
    static constexpr int first_internal_tag = 1 << 30;
    static constexpr std::size_t large_bytes = std::size_t{1} << 20;

    const c10::intrusive_ptr<Options> options_;
    const std::shared_ptr<Reaper> reaper_ = std::make_shared<Reaper>();
    mutable std::mutex lifecycle_;
    std::shared_ptr<Group> group_;  // NULL once the group is closed, and before reconfigure()
    std::atomic<bool> met_{true};   // false before the first reconfigure()
    std::mutex issuing_;            // tutti allows one issuing thread at a time
    DeviceStreams streams_;
    std::atomic<bool> on_device_{
        false};  // set by the first call on a device; from then on supportsCoalescing()
    std::atomic<uint64_t> sequence_{0};  // of collectives, the same on all ranks
    std::atomic<uint64_t> messages_{0};
    std::shared_ptr<CompletionHook> hook_;  // NULL until one is registered
    std::atomic<uint32_t> monitored_{0};
    std::atomic<int64_t> timeout_ms_{-1};  // -1: as the communicator was made
    EphemeralTimeouts ephemeral_;
    const int pid_;
    static inline std::atomic<bool> ending_{false};
    // The last part of this group, and the store that it was made for.
    c10::intrusive_ptr<c10d::Store> split_for_;
    std::optional<c10::weak_intrusive_ptr<c10d::Backend>> split_;
    std::atomic<std::thread::id> estimator_{};  // the thread that estimates, if there is one
    std::atomic<bool> broken_off_{false};       // its estimate lacks a call that was refused
    mutable std::mutex batches_mutex_;
    mutable std::map<std::thread::id, Batch> batches_;  // only its thread uses a batch
    std::atomic<int> open_batches_{0};
};

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

template <typename Function>
auto Backend::noting(Function function) -> decltype(function()) {
    try {
        return function();
    } catch (const CallError&) {
        break_off_estimate();
        reaper_->note(std::current_exception());
        throw;
    } catch (...) {
        break_off_estimate();
        throw;
    }
}

template <typename Starting>
void Backend::start(const Call& call, std::size_t bytes, Starting starting) {
    noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        start_locked(call, bytes, starting);
    });
}

template <typename Starting>
void Backend::start_locked(const Call& call, std::size_t bytes, Starting starting) {
    tutti_request* request = nullptr;
    tutti_call_opts opts = call.opts;
    opts.stream = bytes > large_bytes ? call.group->streams() - 1 : 0;
    const tutti_status status = starting(call.group->comm(), &opts, &request);
    check(status, call.operation->name(), call.operation->words_about_list(status));
    call.operation->add(request);
}

/// torch's asyncOp option; true for older versions, which do not have it.
template <typename Opts>
bool is_async(const Opts& opts) {
    if constexpr (requires { opts.asyncOp; })
        return opts.asyncOp;
    else
        return true;
}

}  // namespace tutti_torch
