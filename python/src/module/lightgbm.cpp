#include "lightgbm.h"

#include <atomic>
#include <cstring>
#include <stdexcept>

namespace nb = nanobind;

namespace tutti_python {

struct LightgbmNetwork::Link {
    std::atomic<tutti_comm*> comm;  // NULL once the network is left
    std::atomic<bool> used{false};  // by a collective
    std::vector<char> blocks;       // of all ranks, for the reducer
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

// The calling thread's communicator, which has a rank for each block.
tutti_comm* comm_for(const char* operation, int blocks) {
    tutti_comm* const comm = installed ? installed->comm.load() : nullptr;
    if (!comm)
        fail(operation,
             "the calling thread is not inside tutti.lightgbm.network(). What to do: make the "
             "Dataset and train in the thread that entered the with block, before the block ends");
    if (const int ranks = tutti_comm_size(comm); blocks != ranks)
        fail(operation, "rank " + std::to_string(tutti_comm_rank(comm)) + ": LightGBM has " +
                            std::to_string(blocks) + " machines, but the communicator has " +
                            std::to_string(ranks) +
                            " ranks. What to do: pass num_machines=comm.size and no machines");
    installed->used = true;
    return comm;
}

void check_call(tutti_status status, const char* operation) {
    if (status != TUTTI_OK) fail(operation, tutti_last_error());
}

// The reducer may be any function of two blocks, such as the better of two splits. So every rank
// gets all ranks' values of its block, and combines them in the order of the ranks.
void reduce_scatter(char* input, Size, int type_size, const Size* starts, const Size* lengths,
                    int blocks, char* output, Size, const Reducer& reducer) {
    constexpr const char* operation = "reduce-scatter";
    tutti_comm* const comm = comm_for(operation, blocks);
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
    tutti_comm* const comm = comm_for(operation, blocks);
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
    : joined_(comm.joined()), link_(std::make_shared<Link>()) {
    if (installed && installed->comm.load())
        raise_misuse(
            "tutti.lightgbm.network: this thread is inside a network already. What to do: leave "
            "the outer with block first, or train the other model in another thread");
    link_->comm = joined_->comm();
    installed = link_;
}

LightgbmNetwork::~LightgbmNetwork() {
    link_->comm = nullptr;
}

bool LightgbmNetwork::used() const {
    return link_->used;
}

void LightgbmNetwork::leave() {
    link_->comm = nullptr;
    joined_.reset();
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
