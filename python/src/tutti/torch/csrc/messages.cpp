// Messages between two ranks. Device messages of a batch take the path of collectives, all at once.
// Single device messages go through host memory, and the host waits for the copies: on the device
// they would wait for each other in the order of the calls, and two ranks that both send first
// would deadlock.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "backend.h"

namespace tutti_torch {

using c10d::OpType;

namespace {

at::Tensor on_host(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return tensor;
    const at::AutoDispatchBelowADInplaceOrView raw;
    at::Tensor copy = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
    return copy.copy_(tensor);
}

}  // namespace

int Backend::checked_tag(int tag, const char* operation) const {
    TORCH_CHECK_VALUE(tag >= 0 && tag < first_internal_tag, "tutti ", operation, ": tag ", tag,
                      " is out of range. What to do: pass a tag from 0 to ",
                      first_internal_tag - 1);
    return tag;
}

bool Backend::goes_by_device(const at::Tensor& tensor) const {
    return batch() && on_device_ && !tensor.is_cpu();
}

template <typename Starting>
Backend::WorkPtr Backend::message(Call& call, Starting starting) {
    if (call.operation->ordered()) {
        call.operation->gather();
        batch()->gathered.push_back({call, starting});
        return call.work;
    }
    start(call, unknown_bytes, starting);
    return started(call);
}

// If one message fails, the others are still launched, so that their peers do not wait in vain.
void Backend::launch_gathered(std::vector<Gathered> all) {
    if (all.empty()) return;
    std::vector<std::exception_ptr> failures;
    const auto each = [&](auto&& step) {
        for (Gathered& one : all) {
            try {
                step(one);
            } catch (...) {
                failures.push_back(std::current_exception());
                one.call.operation->fail(failures.back());
            }
        }
    };
    noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        check(tutti_launch_start(), "batch_isend_irecv");
        each([&](Gathered& one) { start_locked(one.call, unknown_bytes, one.starting); });
        (void)tutti_launch_end();  // each request has its own failure
    });
    for (const auto& failure : failures) reaper_->note(failure);
    each([&](Gathered& one) { started(one.call); });
    if (!failures.empty()) std::rethrow_exception(failures.front());
}

Backend::WorkPtr Backend::send(Tensors& tensors, int destination, int tag) {
    const GivesUpBatch if_it_throws(*this);
    const at::Tensor& tensor = only(tensors, "send");
    const Kind kind{OpType::SEND, "send", "tutti:send", !goes_by_device(tensor)};
    check_tensor(tensor, kind.name, false);
    check_root(destination, kind.name);
    checked_tag(tag, kind.name);
    const Element element = element_of(tensor.scalar_type(), kind.name);
    Call call = begin(kind, Milliseconds(-1), true, tensors, tensors);
    const void* data = call.memory().input(kind.by_host ? on_host(tensor) : tensor);
    return message(call, [=, count = element.count_in(tensor)](
                             tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
        return tutti_isend(comm, data, count, element.dtype, destination, tag, o, request);
    });
}

Backend::WorkPtr Backend::receive(Tensors& tensors, int source, int tag, Kind kind) {
    const GivesUpBatch if_it_throws(*this);
    const at::Tensor& tensor = only(tensors, kind.name);
    kind.by_host = !goes_by_device(tensor);
    check_tensor(tensor, kind.name, true);
    checked_tag(tag, kind.name);
    const Element element = element_of(tensor.scalar_type(), kind.name);
    const std::size_t count = element.count_in(tensor);
    Call call = begin(kind, Milliseconds(-1), true, tensors, tensors);
    at::Tensor target = tensor;
    if (kind.by_host && !tensor.is_cpu()) {
        target = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
        const c10::Stream stream = streams_.messages(tensor.device());
        put_after(stream, current_stream(tensor.device()));
        call.operation->copy_on(stream);
        call.operation->copy_afterwards(Slice(tensor), Slice(target));
    }
    void* data = call.memory().output(target);
    call.operation->expect(count);
    return message(call, [=, status = call.operation->received()](
                             tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
        return tutti_irecv(comm, data, count, element.dtype, source, tag, status, o, request);
    });
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
    check_root(source, "recv");
    return receive(tensors, source, tag, {OpType::RECV, "recv", "tutti:recv"});
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
    return receive(tensors, TUTTI_ANY_SOURCE, tag,
                   {OpType::RECVANYSOURCE, "recv (any source)", "tutti:recvAnySource"});
}

}  // namespace tutti_torch
