#include "lightgbm.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace nb = nanobind;

namespace tutti_python {

struct LightgbmNetwork::Link {
    explicit Link(std::shared_ptr<Joined> joined) : joined_(std::move(joined)) {}

    bool is_open() const {
        const std::lock_guard lock(mutex_);
        return joined_ && !left_;
    }
    /// The communicator for a collective, which ends with end(); NULL if the network is left.
    tutti_comm* begin() {
        const std::lock_guard lock(mutex_);
        if (!joined_ || left_) return nullptr;
        busy_ = true;
        return joined_->comm();
    }
    void end() {
        std::unique_lock lock(mutex_);
        busy_ = false;
        if (!left_) return;
        std::shared_ptr<Joined> last = std::move(joined_);
        lock.unlock();
        const nb::gil_scoped_acquire gil;  // which a Joined's destruction needs
        last.reset();
    }
    /// Lets go of the communicator. The end of a collective that runs in the network's thread does
    /// it instead, because the communicator may be closed meanwhile.
    void leave() {
        std::shared_ptr<Joined> last;  // outlives the lock
        const std::lock_guard lock(mutex_);
        left_ = true;
        if (!busy_) last = std::move(joined_);
    }

    std::atomic<bool> used{false};  // by a collective
    std::vector<char> blocks;       // of all ranks, for the reducer

private:
    mutable std::mutex mutex_;  // of the members below; no thread waits for the GIL under it
    std::shared_ptr<Joined> joined_;
    bool busy_ = false, left_ = false;
};

namespace {

using Link = LightgbmNetwork::Link;

// LightGBM's types (its c_api.h and meta.h). Sizes and offsets are bytes.
using Size = int32_t;
using Reducer = void (*)(const char* input, char* output, int type_size, Size size);
using ReduceScatter = void (*)(char* input, Size input_size, int type_size, const Size* starts,
                               const Size* lengths, int blocks, char* output, Size output_size,
                               const Reducer& reducer);
using Allgather = void (*)(char* input, Size input_size, const Size* starts, const Size* lengths,
                           int blocks, char* output, Size output_size);

// A network that another thread drops stays here without its communicator.
thread_local std::shared_ptr<Link> installed;

[[noreturn]] void fail(const char* operation, const std::string& cause) {
    throw std::runtime_error(std::string("tutti: ") + operation + " for LightGBM: " + cause);
}

// A collective of the calling thread: its communicator, which has a rank for each block.
class NetworkCall {
public:
    NetworkCall(const char* operation, int blocks)
        : comm_(installed ? installed->begin() : nullptr) {
        if (!comm_)
            fail(operation,
                 "the calling thread is not inside tutti.lightgbm.network(). What to do: make the "
                 "Dataset and train in the thread that entered the with block, before the block "
                 "ends");
        const int ranks = tutti_comm_size(comm_), rank = tutti_comm_rank(comm_);
        if (blocks != ranks) {
            installed->end();
            fail(operation, "rank " + std::to_string(rank) + ": LightGBM has " +
                                std::to_string(blocks) + " machines, but the communicator has " +
                                std::to_string(ranks) +
                                " ranks. What to do: pass num_machines=comm.size and no machines");
        }
        installed->used = true;
    }
    ~NetworkCall() { installed->end(); }
    NetworkCall(const NetworkCall&) = delete;

    tutti_comm* comm() const { return comm_; }

private:
    tutti_comm* const comm_;
};

void check_call(tutti_status status, const char* operation) {
    if (status != TUTTI_OK) fail(operation, tutti_last_error());
}

// The reducer may be any function of two blocks, such as the better of two splits. So every rank
// gets all ranks' values of its block, and combines them in the order of the ranks.
void reduce_scatter(char* input, Size, int type_size, const Size* starts, const Size* lengths,
                    int blocks, char* output, Size, const Reducer& reducer) {
    constexpr const char* operation = "reduce-scatter";
    const NetworkCall call(operation, blocks);
    tutti_comm* const comm = call.comm();
    const Size own = lengths[tutti_comm_rank(comm)];
    const auto own_bytes = static_cast<std::size_t>(own);
    const Counts sent(lengths, lengths + blocks), from(starts, starts + blocks);
    const Counts received(sent.size(), own_bytes);
    std::vector<char>& scratch = installed->blocks;
    if (scratch.size() < sent.size() * own_bytes) scratch.resize(sent.size() * own_bytes);
    check_call(tutti_alltoallv(comm, input, sent.data(), from.data(), scratch.data(),
                               received.data(), nullptr, TUTTI_UINT8),
               operation);
    if (own == 0) return;
    std::memcpy(output, scratch.data(), own_bytes);
    for (std::size_t rank = 1; rank < sent.size(); ++rank)
        reducer(scratch.data() + rank * own_bytes, output, type_size, own);
}

// LightGBM's allreduce gathers in place: input and output are the same buffer, in which this rank's
// block lies at the beginning.
void allgather(char* input, Size, const Size* starts, const Size* lengths, int blocks, char* output,
               Size) {
    constexpr const char* operation = "allgather";
    const NetworkCall call(operation, blocks);
    tutti_comm* const comm = call.comm();
    const int rank = tutti_comm_rank(comm);
    const Counts counts(lengths, lengths + blocks), to(starts, starts + blocks);
    char* const own = output + starts[rank];
    if (lengths[rank] > 0) std::memmove(own, input, static_cast<std::size_t>(lengths[rank]));
    check_call(tutti_allgatherv(comm, own, output, counts.data(), to.data(), TUTTI_UINT8),
               operation);
}

[[noreturn]] void raise_misuse(const char* text) {
    PyErr_SetString(PyExc_RuntimeError, text);
    throw nb::python_error();
}

}  // namespace

LightgbmNetwork::LightgbmNetwork(const Communicator& comm)
    : link_(std::make_shared<Link>(comm.joined())) {
    if (installed && installed->is_open())
        raise_misuse(
            "tutti.lightgbm.network: this thread is inside a network already. What to do: leave "
            "the outer with block first, or train the other model in another thread");
    installed = link_;
}

LightgbmNetwork::~LightgbmNetwork() {
    link_->leave();
}

bool LightgbmNetwork::used() const {
    return link_->used;
}

void LightgbmNetwork::leave() {
    link_->leave();
    if (installed != link_)
        raise_misuse(
            "tutti.lightgbm.network: the with block ended in another thread than the one that "
            "entered it. What to do: enter, train and leave in one thread");
    installed.reset();
}

std::uintptr_t LightgbmNetwork::reduce_scatter_address() {
    constexpr ReduceScatter function = &reduce_scatter;
    return reinterpret_cast<std::uintptr_t>(function);
}

std::uintptr_t LightgbmNetwork::allgather_address() {
    constexpr Allgather function = &allgather;
    return reinterpret_cast<std::uintptr_t>(function);
}

}  // namespace tutti_python
