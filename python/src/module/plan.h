// A collective that is bound once, with its arrays, and run often.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <optional>

#include "request.h"

namespace tutti_python {

/// As the communicator: one thread at a time, one run at a time. Requests of its runs may outlive
/// the plan.
class Plan {
public:
    Plan(const char* operation, tutti_plan* plan, std::optional<Input> in,
         std::optional<Output> out, std::weak_ptr<Joined> joined);
    Plan(const Plan&) = delete;

    void run();
    std::unique_ptr<Request> start();

private:
    /// The plan and its arrays, which a run keeps alive until it is over.
    struct Bound {
        Bound(tutti_plan* made, std::optional<Input> in, std::optional<Output> out);
        ~Bound() { tutti_plan_destroy(plan); }
        Bound(const Bound&) = delete;
        tutti_status start(tutti_request** request) const;

        tutti_plan* const plan;
        const std::optional<Input> input;
        const std::optional<Output> output;
    };
    std::unique_ptr<Request> request(const std::shared_ptr<Joined>& inside) const;

    const char* operation_;
    const std::shared_ptr<const Bound> bound_;
    const std::weak_ptr<Joined> joined_;
};

}  // namespace tutti_python
