// Messages between two ranks. They travel in host memory: a device's are copied there and back, and
// the host waits for that.
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
                      "; tags are 0 to ", first_internal_tag - 1);
    return tag;
}

Backend::WorkPtr Backend::send(Tensors& tensors, int destination, int tag) {
    constexpr Kind kind{OpType::SEND, "send", "tutti:send", true};
    const at::Tensor& tensor = only(tensors, kind.name);
    check_tensor(tensor, kind.name, false);
    check_root(destination, kind.name);
    checked_tag(tag, kind.name);
    const Element element = element_of(tensor.scalar_type(), kind.name);
    Call call = begin(kind, Milliseconds(-1), true, tensors, tensors);
    const void* data = call.memory().input(on_host(tensor));
    start(call, unknown_bytes,
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_isend(comm, data, element.count_in(tensor), element.dtype, destination,
                                 tag, o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::receive(Tensors& tensors, int source, int tag, const Kind& kind) {
    const at::Tensor& tensor = only(tensors, kind.name);
    check_tensor(tensor, kind.name, true);
    checked_tag(tag, kind.name);
    const Element element = element_of(tensor.scalar_type(), kind.name);
    Call call = begin(kind, Milliseconds(-1), true, tensors, tensors);
    at::Tensor target = tensor;
    if (!tensor.is_cpu()) {
        target = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
        const c10::Stream stream = streams_.messages(tensor.device());
        put_after(stream, current_stream(tensor.device()));
        call.operation->copy_on(stream);
        call.operation->copy_afterwards(tensor, target);
    }
    void* data = call.memory().output(target);
    call.operation->expect(element.count_in(tensor));
    start(call, unknown_bytes,
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_irecv(comm, data, element.count_in(tensor), element.dtype, source, tag,
                                 call.operation->received(), o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
    constexpr Kind kind{OpType::RECV, "recv", "tutti:recv", true};
    check_root(source, kind.name);
    return receive(tensors, source, tag, kind);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
    constexpr Kind kind{OpType::RECVANYSOURCE, "recv (any source)", "tutti:recvAnySource", true};
    return receive(tensors, TUTTI_ANY_SOURCE, tag, kind);
}

}  // namespace tutti_torch
