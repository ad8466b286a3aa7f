/**
 * @file handles.hpp
 * @brief Part of tutti.hpp: what owns settings, requests and plans.
 */
#ifndef TUTTI_HANDLES_HPP
#define TUTTI_HANDLES_HPP

#include <cstddef>
#include <memory>
#include <ranges>
#include <string>

#include "tutti/buffers.hpp"
#include "tutti/tutti.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

namespace detail {
template <typename T, auto destroy>
struct Destroy {
    void operator()(T* handle) const { destroy(handle); }
};
template <typename T, auto destroy>
using Handle = std::unique_ptr<T, Destroy<T, destroy>>;

inline void wait_quietly(tutti_request* request) {
    tutti_wait(&request, -1);
}
}  // namespace detail

/// Settings for a Communicator: defaults, then the environment, then set(). Move only.
class Config {
public:
    Config() {
        tutti_config* config = nullptr;
        check(tutti_config_create(&config));
        config_.reset(config);
    }
    /// One of tutti_config_set's keys; throws for an unknown key or a value that makes no sense.
    Config& set(const std::string& key, const std::string& value) {
        check(tutti_config_set(config_.get(), key.c_str(), value.c_str()));
        return *this;
    }
    const tutti_config* get() const { return config_.get(); }

private:
    detail::Handle<tutti_config, tutti_config_destroy> config_;
};

/// A non-blocking operation under way. Its buffers must outlive it. Move only; the destructor waits
/// and swallows errors, wait() throws them.
class Request {
public:
    Request() = default;
    explicit Request(tutti_request* request) : request_(request) {}

    /// Until it is done or its own deadline has passed. At once when already waited for.
    void wait() { wait_for(-1); }
    /// At most timeout_ms: false if it still runs then.
    bool wait_for(int64_t timeout_ms) {
        tutti_request* request = request_.release();
        const tutti_status status = tutti_wait(&request, timeout_ms);
        request_.reset(request);
        if (request != nullptr && (status == TUTTI_ERR_TIMEOUT || status == TUTTI_IN_PROGRESS))
            return false;
        check(status);
        return true;
    }
    /// Whether it is done; never waits.
    bool test() { return wait_for(0); }
    tutti_request* get() const { return request_.get(); }

private:
    detail::Handle<tutti_request, detail::wait_quietly> request_;
};

/// A persistent operation, bound once (Communicator::plan_…) and run often, with any buffers of its
/// counts and type. Move only; it ends before its communicator does.
class Plan {
public:
    /// The size of a buffer that this rank has no use for.
    static constexpr std::size_t any = static_cast<std::size_t>(-1);

    Plan(tutti_plan* plan, std::size_t in_count, std::size_t out_count, tutti_dtype dtype)
        : plan_(plan), in_count_(in_count), out_count_(out_count), dtype_(dtype) {}

    template <InputBuffer I, Buffer O>
    void run(const I& in, O&& out) {
        check_fit(in, out);
        check(tutti_plan_run(plan_.get(), std::ranges::data(in), std::ranges::data(out)));
    }
    /// In place, where input and output are the same memory.
    template <Buffer B>
    void run(B&& buffer) {
        run(buffer, buffer);
    }
    /// A barrier's.
    void run() { check(tutti_plan_run(plan_.get(), nullptr, nullptr)); }

    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request start(const I& in, O&& out) {
        check_fit(in, out);
        tutti_request* r = nullptr;
        check(tutti_plan_start(plan_.get(), std::ranges::data(in), std::ranges::data(out), &r));
        return Request(r);
    }
    template <Buffer B>
    [[nodiscard]] Request start(B&& buffer) {
        return start(buffer, buffer);
    }

private:
    template <typename I, typename O>
    void check_fit(const I& in, const O& out) const {
        static_assert(detail::dtype_in<I> == detail::dtype_in<O>,
                      "input and output have different element types");
        const std::size_t in_size = std::ranges::size(in), out_size = std::ranges::size(out);
        if ((in_count_ == any || in_size == in_count_) &&
            (out_count_ == any || out_size == out_count_) && detail::dtype_in<O> == dtype_)
            return;
        detail::refuse("buffers of " + std::to_string(in_size) + " and " +
                       std::to_string(out_size) + " elements are not of the plan's count and type");
    }
    detail::Handle<tutti_plan, tutti_plan_destroy> plan_;
    std::size_t in_count_;
    std::size_t out_count_;
    tutti_dtype dtype_;
};

}  // namespace cxx
}  // namespace tutti

#endif
