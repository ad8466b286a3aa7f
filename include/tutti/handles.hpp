/**
 * @file handles.hpp
 * @brief Part of tutti.hpp: owners of settings, requests, operators, memory and plans.
 */
#ifndef TUTTI_HANDLES_HPP
#define TUTTI_HANDLES_HPP

#include <cstddef>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

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
    /// Sets a key of tutti_config_set; throws for an unknown key or an invalid value.
    Config& set(const std::string& key, const std::string& value) {
        check(tutti_config_set(config_.get(), key.c_str(), value.c_str()));
        return *this;
    }
    const tutti_config* get() const { return config_.get(); }

private:
    detail::Handle<tutti_config, tutti_config_destroy> config_;
};

/// A non-blocking operation in progress. Its buffers must outlive it. Move only; the destructor
/// waits and ignores errors, wait() throws them.
class Request {
public:
    Request() = default;
    explicit Request(tutti_request* request) : request_(request) {}

    /// Waits until it is done or its own deadline has passed. Returns at once if already waited
    /// for.
    void wait() { wait_for(-1); }
    /// Waits at most timeout_ms: false if it still runs then.
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

/// Properties of an operator that limit how tutti may order and cut its operands.
struct OperatorTraits {
    bool commutative = true;        ///< false: contributions are combined in rank order
    std::size_t item_elements = 1;  ///< elements of an item, never split; 64 bytes at most
};

/// An operator of the program's own, for every operator argument here and in the C API. Every
/// process makes its operators in the same order. Move only; the destructor frees the handle, but
/// plans and requests that use the operator keep it.
class Operator {
public:
    /// As tutti_op_spec::combine: result[i] = first[i] ⊕ second[i], associative and pure, called
    /// from any thread. It must not throw.
    using Function = void (*)(const void* first, const void* second, void* result,
                              std::size_t count, tutti_dtype dtype, void* user);

    /// user is passed to combine and must live until the last operation is done.
    explicit Operator(Function combine, void* user = nullptr, const OperatorTraits& traits = {}) {
        tutti_op_spec spec = TUTTI_OP_SPEC_INIT;
        spec.combine = combine;
        spec.user = user;
        spec.commutative = traits.commutative ? 1 : 0;
        spec.item_elements = traits.item_elements;
        check(tutti_op_create(&spec, &op_));
    }
    /// Takes over a handle of the C API.
    explicit Operator(tutti_op op) : op_(op) {}
    Operator(Operator&& other) noexcept : op_(std::exchange(other.op_, none)) {}
    Operator& operator=(Operator&& other) noexcept {
        std::swap(op_, other.op_);
        return *this;
    }
    ~Operator() {
        if (op_ != none) tutti_op_destroy(op_);
    }

    operator tutti_op() const { return op_; }  // NOLINT: an argument like TUTTI_SUM

private:
    static constexpr tutti_op none = -1;
    tutti_op op_ = none;
};

/// A buffer registered with the networks (tutti_mem_alloc): zeroed, and a Buffer like a vector.
/// Move only. It may outlive its communicator.
template <Element T>
class Memory {
public:
    Memory() = default;
    Memory(tutti_comm* comm, std::size_t count) : size_(count) {
        void* data = nullptr;
        if (count > static_cast<std::size_t>(-1) / sizeof(T))
            detail::refuse(std::to_string(count) + " elements are more than memory can hold",
                           "pass a smaller count");
        check(tutti_mem_alloc(comm, count * sizeof(T), &data));
        data_ = static_cast<T*>(data);
    }
    Memory(Memory&& other) noexcept { swap(other); }
    Memory& operator=(Memory&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Memory() {
        if (data_ != nullptr) tutti_mem_free(nullptr, data_);
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }

private:
    void swap(Memory& other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A persistent operation, bound once (Communicator::plan_…) and run often, with any buffers of its
/// counts and type. Move only; destroy it before its communicator.
class Plan {
public:
    /// The size of a buffer that this rank does not use.
    static constexpr std::size_t any = static_cast<std::size_t>(-1);

    Plan(tutti_plan* plan, std::size_t in_count, std::size_t out_count, tutti_dtype dtype,
         std::size_t inputs = 0)
        : plan_(plan), in_count_(in_count), out_count_(out_count), inputs_(inputs), dtype_(dtype) {}

    template <InputBuffer I, Buffer O>
    void run(const I& in, O&& out) {
        check_fit(in, out);
        check(tutti_plan_run(plan_.get(), std::ranges::data(in), std::ranges::data(out)));
    }
    /// In place: input and output are the same memory.
    template <Buffer B>
    void run(B&& buffer) {
        run(buffer, buffer);
    }
    /// For a plan_allreduce_multi: as many inputs as the plan has; they may differ in each run.
    template <InputList L, Buffer O>
    void run(const L& ins, O&& out) {
        const auto starts = check_list(ins, out);
        check(tutti_plan_run(plan_.get(), starts.data(), std::ranges::data(out)));
    }
    /// For a barrier.
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
    /// The list need not outlive the call.
    template <InputList L, Buffer O>
    [[nodiscard]] Request start(const L& ins, O&& out) {
        const auto starts = check_list(ins, out);
        tutti_request* r = nullptr;
        check(tutti_plan_start(plan_.get(), starts.data(), std::ranges::data(out), &r));
        return Request(r);
    }

private:
    template <typename L, typename O>
    std::vector<const void*> check_list(const L& ins, const O& out) const {
        static_assert(detail::dtype_in<std::ranges::range_value_t<L>> == detail::dtype_in<O>,
                      "inputs and output have different element types");
        auto starts = detail::starts_of(ins, std::ranges::size(out));
        if (inputs_ == starts.size() && out_count_ == std::ranges::size(out) &&
            detail::dtype_in<O> == dtype_)
            return starts;
        detail::refuse(std::to_string(starts.size()) + " inputs of " +
                           std::to_string(std::ranges::size(out)) + " elements do not fit the plan",
                       "pass as many inputs, of the count and type, as the plan was made for");
    }
    template <typename I, typename O>
    void check_fit(const I& in, const O& out) const {
        static_assert(detail::dtype_in<I> == detail::dtype_in<O>,
                      "input and output have different element types");
        const std::size_t in_size = std::ranges::size(in), out_size = std::ranges::size(out);
        if (inputs_ == 0 && (in_count_ == any || in_size == in_count_) &&
            (out_count_ == any || out_size == out_count_) && detail::dtype_in<O> == dtype_)
            return;
        detail::refuse("buffers of " + std::to_string(in_size) + " and " +
                           std::to_string(out_size) + " elements do not fit the plan",
                       "pass buffers of the count and type that the plan was made for");
    }
    detail::Handle<tutti_plan, tutti_plan_destroy> plan_;
    std::size_t in_count_;
    std::size_t out_count_;
    std::size_t inputs_;  // number of inputs of an allreduce_multi, else 0
    tutti_dtype dtype_;
};

}  // namespace cxx
}  // namespace tutti

#endif
