// The steps that all calls share, and the life of the group.
#include "backend.h"

#include <unistd.h>

#include <algorithm>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>

#include "together.h"

namespace tutti_torch {
namespace {

// leave() waits this long for operations that the program has started and not waited for.
constexpr std::chrono::milliseconds leave_grace{5000};
// waitForPendingWorks() waits this long for completion hooks, which may never get the interpreter's
// lock.
constexpr std::chrono::seconds hook_grace{60};

}  // namespace

Backend::Backend(std::shared_ptr<Group> group, c10::intrusive_ptr<Options> options)
    : c10d::Backend(tutti_comm_rank(group->comm()), tutti_comm_size(group->comm())),
      options_(std::move(options)),
      group_(std::move(group)),
      pid_(::getpid()) {}

Backend::Backend(int rank, int size, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size), options_(std::move(options)), met_(false), pid_(::getpid()) {}

Backend::~Backend() {
    batches_.clear();
    leave();
}

// ---- calls

std::shared_ptr<Group> Backend::group() const {
    const std::lock_guard lock(lifecycle_);
    TORCH_CHECK(
        group_ || met_,
        "tutti: the process group has not been initialized, because it was made with "
        "enable_reconfigure=True. What to do: call reconfigure() before the first collective");
    TORCH_CHECK(
        group_,
        "tutti: the process group is closed: it was destroyed or shut down. What to do: make "
        "calls before destroy_process_group, or a new group");
    return group_;
}

Backend::Milliseconds Backend::limit_of(Milliseconds asked,
                                        const std::shared_ptr<Operation>& call) {
    const Milliseconds extension = ephemeral_.begin(call);
    const Milliseconds own(timeout_ms_.load(std::memory_order_relaxed));
    Milliseconds limit = asked.count() < 0 ? own : asked;
    if (limit == options_->timeout && own.count() < 0) limit = Milliseconds(-1);
    if (extension.count() == 0 || limit.count() == 0) return limit;
    return (limit.count() < 0 ? options_->timeout : limit) + extension;
}

Backend::Call Backend::begin(const Kind& kind, Milliseconds timeout, bool async,
                             const Tensors& inputs, Tensors results) {
    const GivesUpBatch if_it_throws(*this);
    const c10::Device device = device_of(inputs, results, kind.name);
    Call call;
    call.group = group();
    call.planned = estimates();
    if (call.planned) check_estimate(kind, device);
    call.operation = std::make_shared<Operation>(kind.name, reaper_);
    timeout = limit_of(timeout, call.operation);
    const bool profiled = at::hasCallbacks();
    // Ranks compare the numbers of their collectives, so messages, which differ, count separately,
    // and calls that are planned and not made do not count.
    const uint64_t number = call.planned            ? sequence_.load()
                            : is_message(kind.type) ? ++messages_
                                                    : ++sequence_;
    const Description description{kind.type, profiled ? kind.title : nullptr, number,
                                  timeout.count() < 0 ? options_->timeout : timeout};
    call.work = c10::make_intrusive<Work>(description, rank_, call.operation,
                                          profiled ? std::optional(inputs) : std::nullopt);
    call.work->set_results(std::move(results));
    call.opts = TUTTI_CALL_OPTS_INIT;
    call.opts.timeout_ms = timeout.count();
    call.async = async || batch();
    if (!device.is_cpu() && !kind.by_host) place(call, device);
    return call;
}

// Puts the call on one of the group's streams, behind the work now on the caller's stream.
void Backend::place(Call& call, c10::Device device) {
    if (auto deferred = reaper_->take_deferred_error()) std::rethrow_exception(deferred);
    const c10::Stream current = current_stream(device);
    check_not_captured(current, call.operation->name().c_str());
    const auto own = streams_.collectives(device);
    put_after(own.stream, current);
    call.operation->run_on(own.stream);
    call.opts.device_stream = own.handle;
    on_device_ = true;
}

// Gives no name if some rank has an older version of this layer, which gives none.
void Backend::give_name(Call& call, const ListName* name, std::size_t tensors) const {
    const bool named = name && call.group->all_name_lists();
    call.opts.name = named ? name->text() : nullptr;
    if (named) call.operation->tell_of_list(tensors);
}

// A synchronous call throws here; torch's python waits for the Work all the same.
Backend::WorkPtr Backend::started(Call& call) {
    if (call.operation->ordered()) call.operation->enqueued();
    if (call.planned)
        call.operation->forget_copies();
    else if (hasHooks())
        report_to_hook(call);
    if (Batch* open = batch()) open->works.push_back(call.work);
    reaper_->in_flight().add(call.operation);
    // Release the group before waiting: another thread may then close it, which ends the wait.
    call.group.reset();
    if (!call.async) call.work->wait(kNoTimeout);
    return call.work;
}

void Backend::check_root(int64_t root, const char* operation) const {
    TORCH_CHECK_VALUE(
        root >= 0 && root < size_, "tutti ", operation, ": rank ", root,
        " is not in the group. What to do: pass a rank of the group, which has ranks 0 "
        "to ",
        size_ - 1);
}

void Backend::check_list(std::size_t got, const char* operation, const char* what) const {
    TORCH_CHECK_VALUE(got == static_cast<std::size_t>(size_), "tutti ", operation, ": expected ",
                      size_, " ", what, ", one for each rank, got ", got, ". What to do: pass ",
                      size_, " ", what);
}

Backend::OwnedOp Backend::operator_for(const c10d::ReduceOp& op, const Reduction& reduction,
                                       at::ScalarType type, const Call& call) {
    // All ranks make their premultiplied sums in the same order; a planned call needs none.
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM || call.planned) return {reduction.op, false};
    const auto* factor = dynamic_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    TORCH_CHECK_VALUE(factor, "tutti ", call.operation->name(),
                      ": PREMUL_SUM has no factor. What to do: make the operator with "
                      "_make_nccl_premul_sum");
    at::ScalarType accumulator = c10::toRealValueType(type);
    const bool small = at::isFloatingType(accumulator) && c10::elementSize(accumulator) < 4;
    if (small) accumulator = at::kFloat;
    const at::Tensor scalar =
        factor->tensor_factor.defined()
            ? factor->tensor_factor.to(at::kCPU, accumulator).contiguous()
            : at::scalar_tensor(factor->double_factor, at::TensorOptions(accumulator));
    tutti_op made = -1;
    noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        check(tutti_op_create_premul_sum(call.group->comm(), scalar.const_data_ptr(),
                                         small ? TUTTI_FLOAT32 : reduction.element.dtype, &made),
              call.operation->name());
    });
    return {made, true};
}

// ---- pending operations

// Pending operations on device streams, which the host has not waited for.
std::vector<std::shared_ptr<Operation>> Backend::ordered_operations() {
    auto found = reaper_->in_flight().pending();
    std::erase_if(found, [](const auto& operation) { return !operation->ordered(); });
    return found;
}

void Backend::waitForPendingWorks() {
    for (const auto& operation : reaper_->in_flight().pending()) operation->wait(kNoTimeout);
    if (hook_) hook_->wait_until_called(hook_grace);
}

void Backend::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
    TORCH_CHECK(
        !hasHooks(),
        "tutti: this group has a completion hook already. What to do: register one hook for "
        "each group");
    hook_ = std::make_shared<CompletionHook>(std::move(hook));
    onCompletionHook_ = [hook = hook_](std::shared_ptr<c10d::WorkInfo> info) {
        hook->call(std::move(info));
    };
}

void Backend::report_to_hook(const Call& call) {
    // Another clock in older versions.
    using Clock = decltype(c10d::WorkInfo::timeStarted)::clock;
    const auto began = Clock::now();
    hook_->expect();
    call.operation->when_done([hook = hook_, began, type = call.work->retrieveOpType(),
                               sequence = call.work->getSequencenumber()] {
        const auto over = Clock::now();
        const std::chrono::duration<float> active = over - began;
        hook->call(std::make_shared<c10d::WorkInfo>(type, sequence, began, over, active));
    });
}

void Backend::startCoalescing() {
    drop_batch();
    const std::lock_guard lock(batches_mutex_);
    batches_.try_emplace(std::this_thread::get_id());
    ++open_batches_;
}

Backend::Batch* Backend::batch() const {
    if (open_batches_ == 0) return nullptr;
    const std::lock_guard lock(batches_mutex_);
    const auto found = batches_.find(std::this_thread::get_id());
    return found == batches_.end() ? nullptr : &found->second;
}

void Backend::drop_batch() {
    if (!batch()) return;
    decltype(batches_)::node_type dropped;
    const std::lock_guard lock(batches_mutex_);
    dropped = batches_.extract(std::this_thread::get_id());
    --open_batches_;
}

Backend::WorkPtr Backend::endCoalescing() {
    Batch* const open = batch();
    TORCH_CHECK(open,
                "tutti: endCoalescing without startCoalescing. What to do: call _start_coalescing "
                "before _end_coalescing, in the same thread");
    const auto over = c10::make_scope_exit([this] { drop_batch(); });
    launch_gathered(std::exchange(open->gathered, {}));
    return c10::make_intrusive<Together>(rank_, std::move(open->works), reaper_->hooks());
}

// ---- the group

void Backend::eagerConnectSingleDevice(at::Device device) {
    if (!device.is_cuda()) return;
    const auto whole = group();
    noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        check(tutti_comm_use_device(whole->comm(), device.index()), "init with a device");
    });
    on_device_ = true;
}

void Backend::setTimeout(Milliseconds timeout) {
    options_->timeout = timeout;
    timeout_ms_ = timeout.count();
}

uint64_t Backend::getSequenceNumberForGroup() {
    return sequence_;
}

// Torch calls this once for each type of device that the group serves, with the same store; newer
// versions call it once per member. So the part is made once, for all types.
c10::intrusive_ptr<c10d::Backend> Backend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    if (store && store == split_for_) return split_ ? split_->lock() : nullptr;
    auto part = make_part(ranks, options);
    split_for_ = store;
    split_.reset();
    if (part) split_.emplace(part);
    return part;
}

c10::intrusive_ptr<c10d::Backend> Backend::make_part(
    const std::vector<int>& ranks, const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    const auto me = std::find(ranks.begin(), ranks.end(), rank_);
    const bool member = me != ranks.end();
    const int color = member ? *std::min_element(ranks.begin(), ranks.end()) : -1;
    const auto whole = group();
    std::shared_ptr<Group> part = noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        return whole->split(color, static_cast<int>(me - ranks.begin()));
    });
    return part ? made_of(std::move(part), options) : nullptr;
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank, const int& size) {
    constexpr bool one_launcher = false;
    const Milliseconds timeout = options ? options->timeout : options_->timeout;
    const std::string name = options ? options->group_name : std::string();
    return made_of(Group::join(store, rank, size, timeout, "merged/" + name, options_->settings,
                               one_launcher),
                   options);
}

c10::intrusive_ptr<c10d::Backend> Backend::made_of(
    std::shared_ptr<Group> part, const c10::intrusive_ptr<c10d::Backend::Options>& options) const {
    auto own = c10::make_intrusive<Options>(options_->settings, options_->timeout);
    auto backend = c10::make_intrusive<Backend>(std::move(part), std::move(own));
    // The part's communicator inherits this communicator's original time-out.
    const Milliseconds timeout = options ? options->timeout : options_->timeout;
    if (timeout_ms_ >= 0 || timeout != options_->timeout) backend->setTimeout(timeout);
    return backend;
}

std::shared_ptr<Group> Backend::duplicate() {
    const auto whole = group();
    return noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        return whole->split(0, rank_);
    });
}

#if TUTTI_TORCH_AT_LEAST(2, 7)
c10d::ErrorType Backend::getError() {
    switch (reaper_->ended_by()) {
        case TUTTI_OK:
            return c10d::ErrorType::SUCCESS;
        case TUTTI_ERR_TIMEOUT:
            return c10d::ErrorType::TIMEOUT;
        default:
            return c10d::ErrorType::COMM_ERROR;
    }
}
#endif

void Backend::abort() {
    std::shared_ptr<Group> group;
    {
        const std::lock_guard lock(lifecycle_);
        group = group_;
    }
    if (!group) return;
    reaper_->run_abort_hooks();
    (void)tutti_comm_abort(group->comm());
}

void Backend::shutdown() {
    leave();
}

// Pending operations get leave_grace; the group ends the rest with ABORTED. Never hangs.
void Backend::leave() {
    std::shared_ptr<Group> group;
    {
        const std::lock_guard lock(lifecycle_);
        group = std::move(group_);
        group_ = nullptr;
    }
    if (!group) return;
    if (::getpid() != pid_) {
        // A forked child has the memory but not the threads: leak its copy.
        new std::shared_ptr<Group>(std::move(group));
        return;
    }
    // From now on this rank ends the group, and no failure.
    reaper_->hooks().abort.clear();
    const auto grace = ending_ ? Milliseconds(0) : leave_grace;
    const auto limit = std::chrono::steady_clock::now() + grace;
    for (const auto& operation : reaper_->in_flight().pending()) {
        const auto left =
            std::chrono::duration_cast<Milliseconds>(limit - std::chrono::steady_clock::now());
        if (left.count() > 0) operation->wait(left);
    }
    drop_batch();
    group.reset();
    reaper_->stop();
    reaper_->hooks().completion.clear();
}

void Backend::dump(int fd) {
    check(tutti_comm_dump(group()->comm(), fd), "dump");
}

}  // namespace tutti_torch
