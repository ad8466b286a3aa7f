#include "plan.h"

#include <utility>

namespace nb = nanobind;

namespace tutti_python {

Plan::Bound::Bound(tutti_plan* made, std::optional<Input> in, std::optional<Output> out)
    : plan(made), input(std::move(in)), output(std::move(out)) {}

// A broadcast has no input array: it works in place on its output.
tutti_status Plan::Bound::start(tutti_request** request) const {
    void* const out = output ? output->data() : nullptr;
    return tutti_plan_start(plan, input ? input->data() : out, out, request);
}

Plan::Plan(const char* operation, tutti_plan* plan, std::optional<Input> in,
           std::optional<Output> out, std::weak_ptr<Joined> joined)
    : operation_(operation),
      bound_(std::make_shared<const Bound>(plan, std::move(in), std::move(out))),
      joined_(std::move(joined)) {}

std::unique_ptr<Request> Plan::request(const std::shared_ptr<Joined>& inside) const {
    return std::make_unique<Request>(operation_, bound_, inside);
}

void Plan::run() {
    const std::shared_ptr<Joined> inside = entered(joined_.lock());
    start_and_wait(
        operation_, [this](tutti_request** slot) { return bound_->start(slot); },
        [&] { return request(inside); });
}

std::unique_ptr<Request> Plan::start() {
    const std::shared_ptr<Joined> inside = entered(joined_.lock());
    auto started = request(inside);
    check_released(operation_, [&] { return bound_->start(started->slot()); });
    return started;
}

}  // namespace tutti_python
