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
 * std::byte; other element types (16- and 8-bit floats) go through the C API. What tutti.h says of
 * threads, aliasing and deadlines holds here too.
 */
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP

#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "tutti/tutti.h"

namespace tutti {
// A namespace of its own in the symbols' names: the library has internal classes called the same,
// and a program linked with the static library would otherwise mix the two.
inline namespace cxx {

/// A failed call. what() is tutti_last_error()'s sentence.
class Error : public std::runtime_error {
public:
    Error(tutti_status status, int rank, const std::string& message)
        : std::runtime_error(message), status_(status), rank_(rank) {}
    tutti_status status() const { return status_; }
    /// The rank at fault; -1 if none is known.
    int rank() const { return rank_; }

private:
    tutti_status status_;
    int rank_;
};

/// Throws the thread's last error unless status is TUTTI_OK.
inline void check(tutti_status status) {
    if (status == TUTTI_OK) return;
    const std::string text = tutti_last_error();
    throw Error(status, tutti_last_error_rank(), text.empty() ? tutti_status_string(status) : text);
}

namespace detail {
template <typename T>
constexpr tutti_dtype dtype_for() {
    if constexpr (std::same_as<T, float>) return TUTTI_FLOAT32;
    if constexpr (std::same_as<T, double>) return TUTTI_FLOAT64;
    if constexpr (std::same_as<T, std::byte>) return TUTTI_UINT8;
    if constexpr (std::is_integral_v<T> && !std::same_as<T, bool>) {
        const tutti_dtype u = std::is_unsigned_v<T> ? 1 : 0;  // each unsigned follows its signed
        if constexpr (sizeof(T) == 1) return TUTTI_INT8 + u;
        if constexpr (sizeof(T) == 2) return TUTTI_INT16 + u;
        if constexpr (sizeof(T) == 4) return TUTTI_INT32 + u;
        if constexpr (sizeof(T) == 8) return TUTTI_INT64 + u;
    }
    return -1;
}
}  // namespace detail

/// The dtype of a C++ element type.
template <typename T>
inline constexpr tutti_dtype dtype_of = detail::dtype_for<std::remove_cv_t<T>>();

/// What can be read from: a contiguous range whose elements have a dtype.
template <typename R>
concept InputBuffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    dtype_of<std::ranges::range_value_t<R>>
>= 0;
/// What can also be written to.
template <typename R>
concept Buffer =
    InputBuffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

namespace detail {
template <typename R>
constexpr tutti_dtype dtype_in = dtype_of<std::ranges::range_value_t<R>>;

template <typename T, auto destroy>
struct Destroy {
    void operator()(T* handle) const { destroy(handle); }
};
template <typename T, auto destroy>
using Handle = std::unique_ptr<T, Destroy<T, destroy>>;

inline void wait_quietly(tutti_request* request) {
    tutti_wait(&request, -1);
}

template <typename I, typename O>
void check_pair(const I& in, const O& out) {
    static_assert(dtype_in<I> == dtype_in<O>, "input and output have different element types");
    if (std::ranges::size(in) != std::ranges::size(out))
        throw Error(TUTTI_ERR_INVALID, -1,
                    "input has " + std::to_string(std::ranges::size(in)) +
                        " elements, output has " + std::to_string(std::ranges::size(out)));
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
/// count and type. Move only; it ends before its communicator does.
class Plan {
public:
    Plan(tutti_plan* plan, std::size_t count, tutti_dtype dtype)
        : plan_(plan), count_(count), dtype_(dtype) {}

    template <InputBuffer I, Buffer O>
    void run(const I& in, O&& out) {
        check_fit(in, out);
        check(tutti_plan_run(plan_.get(), std::ranges::data(in), std::ranges::data(out)));
    }
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
        detail::check_pair(in, out);
        if (std::ranges::size(out) != count_ || detail::dtype_in<O> != dtype_)
            throw Error(TUTTI_ERR_INVALID, -1, "the buffer is not of the plan's count and type");
    }
    detail::Handle<tutti_plan, tutti_plan_destroy> plan_;
    std::size_t count_;
    tutti_dtype dtype_;
};

/// This rank's membership of a group. Move only; the destructor leaves in order and never hangs.
/// opts NULL means defaults throughout.
class Communicator {
public:
    /// Joins the job that the environment describes.
    Communicator() : Communicator(nullptr) {}
    explicit Communicator(const Config& config) : Communicator(config.get()) {}

    int rank() const { return tutti_comm_rank(get()); }
    int size() const { return tutti_comm_size(get()); }
    /// From any thread: fails every operation on all ranks.
    void abort() { check(tutti_comm_abort(get())); }
    tutti_comm* get() const { return comm_.get(); }

    /// out[i] = in[i] of all ranks combined, the same bits on every rank.
    template <InputBuffer I, Buffer O>
    void allreduce(const I& in, O&& out, tutti_op op = TUTTI_SUM) {
        detail::check_pair(in, out);
        check(tutti_allreduce(get(), std::ranges::data(in), std::ranges::data(out),
                              std::ranges::size(out), detail::dtype_in<O>, op));
    }
    /// In place.
    template <Buffer B>
    void allreduce(B&& buffer, tutti_op op = TUTTI_SUM) {
        allreduce(buffer, buffer, op);
    }
    /// buffer of every rank becomes root's.
    template <Buffer B>
    void broadcast(B&& buffer, int root = 0) {
        check(tutti_broadcast(get(), std::ranges::data(buffer), std::ranges::size(buffer),
                              detail::dtype_in<B>, root));
    }
    /// Returns when every rank has called it.
    void barrier() { check(tutti_barrier(get())); }

    template <InputBuffer I, Buffer O>
    [[nodiscard]] Request iallreduce(const I& in, O&& out, tutti_op op = TUTTI_SUM,
                                     const tutti_call_opts* opts = nullptr) {
        detail::check_pair(in, out);
        tutti_request* r = nullptr;
        check(tutti_iallreduce(get(), std::ranges::data(in), std::ranges::data(out),
                               std::ranges::size(out), detail::dtype_in<O>, op, opts, &r));
        return Request(r);
    }
    template <Buffer B>
    [[nodiscard]] Request iallreduce(B&& buffer, tutti_op op = TUTTI_SUM,
                                     const tutti_call_opts* opts = nullptr) {
        return iallreduce(buffer, buffer, op, opts);
    }
    template <Buffer B>
    [[nodiscard]] Request ibroadcast(B&& buffer, int root = 0,
                                     const tutti_call_opts* opts = nullptr) {
        tutti_request* r = nullptr;
        check(tutti_ibroadcast(get(), std::ranges::data(buffer), std::ranges::size(buffer),
                               detail::dtype_in<B>, root, opts, &r));
        return Request(r);
    }
    [[nodiscard]] Request ibarrier(const tutti_call_opts* opts = nullptr) {
        tutti_request* r = nullptr;
        check(tutti_ibarrier(get(), opts, &r));
        return Request(r);
    }

    /// Persistent forms, collective: Plan p = comm.plan_allreduce<float>(1000); p.run(buffer);
    template <typename T>
    requires(dtype_of<T> >= 0) Plan plan_allreduce(std::size_t count, tutti_op op = TUTTI_SUM,
                                                   const tutti_call_opts* opts = nullptr) {
        tutti_plan* plan = nullptr;
        check(tutti_plan_allreduce(get(), count, dtype_of<T>, op, opts, &plan));
        return {plan, count, dtype_of<T>};
    }
    template <typename T>
    requires(dtype_of<T> >= 0) Plan
        plan_broadcast(std::size_t count, int root = 0, const tutti_call_opts* opts = nullptr) {
        tutti_plan* plan = nullptr;
        check(tutti_plan_broadcast(get(), count, dtype_of<T>, root, opts, &plan));
        return {plan, count, dtype_of<T>};
    }
    Plan plan_barrier(const tutti_call_opts* opts = nullptr) {
        tutti_plan* plan = nullptr;
        check(tutti_plan_barrier(get(), opts, &plan));
        return {plan, 0, TUTTI_UINT8};
    }

private:
    explicit Communicator(const tutti_config* config) {
        tutti_comm* comm = nullptr;
        check(tutti_comm_create(config, &comm));
        comm_.reset(comm);
    }
    detail::Handle<tutti_comm, tutti_comm_destroy> comm_;
};

}  // namespace cxx
}  // namespace tutti

#endif
