// A communicator for python: one function for all collectives, which communicator.py calls by name.
#pragma once

#include <tutti/tutti.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan.h"
#include "request.h"

namespace tutti_python {

/// tutti's settings by name.
using Settings = std::map<std::string, std::string>;
using Config = std::unique_ptr<tutti_config, decltype(&tutti_config_destroy)>;
Config config_of(const Settings& settings, const char* operation);

/// Elements for each rank.
using Counts = std::vector<std::size_t>;

/// The arguments of a collective; it uses some of them.
struct Call {
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;
    tutti_dtype dtype = TUTTI_UINT8;
    tutti_op op = TUTTI_SUM;
    int root = 0;
    Counts counts, out_counts;  // for the forms with blocks of different lengths
};

/// As tutti_comm: one thread at a time issues. Releases the GIL while a call waits.
class Communicator {
public:
    explicit Communicator(const Settings& settings);
    explicit Communicator(std::shared_ptr<Joined> joined) : joined_(std::move(joined)) {}
    ~Communicator() { close(); }
    Communicator(const Communicator&) = delete;

    int rank() const { return tutti_comm_rank(joined()->comm()); }
    int size() const { return tutti_comm_size(joined()->comm()); }
    int local_rank() const { return tutti_comm_local_rank(joined()->comm()); }
    int local_size() const { return tutti_comm_local_size(joined()->comm()); }
    int host_count() const { return tutti_comm_host_count(joined()->comm()); }
    int host_of(int rank) const { return tutti_comm_host_of(joined()->comm(), rank); }

    /// count, counts: elements of the arrays' type, as tutti.h counts for this collective.
    void run(const char* collective, std::optional<Input> in, std::optional<Output> out,
             std::size_t count, const char* op, int root);
    std::unique_ptr<Request> start(const char* collective, std::optional<Input> in,
                                   std::optional<Output> out, std::size_t count, const char* op,
                                   int root, int64_t timeout_ms, const Counts& counts,
                                   const Counts& out_counts);
    /// name: the operation that begins with it, if any.
    void barrier(const std::optional<std::string>& name);
    /// A persistent plan of such a call, bound to these arrays.
    std::unique_ptr<Plan> plan(const char* collective, std::optional<Input> in,
                               std::optional<Output> out, std::size_t count, const char* op,
                               int root, int64_t timeout_ms, const Counts& counts,
                               const Counts& out_counts);
    std::unique_ptr<Request> send(Input data, int destination, int tag, int64_t timeout_ms);
    std::unique_ptr<Request> receive(Output data, int source, int tag, int64_t timeout_ms);
    /// The caller checks ranks and tags: an error here could come after one message has started.
    std::pair<std::unique_ptr<Request>, std::unique_ptr<Request>> sendrecv(
        Input data, int destination, int tag, Output received, int source, int received_tag);

    /// Wraps another owner's communicator, which keeper keeps alive. close() works as for an own
    /// one.
    static std::unique_ptr<Communicator> adopt(std::uintptr_t address, nanobind::object keeper);
    /// ValueError once it is closed.
    std::shared_ptr<Joined> joined() const;

    /// NULL for a negative color.
    std::unique_ptr<Communicator> split(int color, int key);
    std::unique_ptr<Communicator> duplicate();
    /// leavers: ranks that are left out, alive or not.
    std::unique_ptr<Communicator> shrink(const std::vector<int>& leavers);
    std::unique_ptr<Communicator> grow(int newcomers);
    uint64_t agree(uint64_t bits);
    /// The ranks that are no members any more, as the last of these two calls has decided.
    std::vector<int> lost() const;
    std::string explain(const char* collective, std::size_t bytes, const char* dtype,
                        const char* op);
    void dump(int fd);
    void abort();
    void revoke();
    int waiting();
    void leave();
    /// Fails pending operations of other threads, on all ranks.
    void close();

private:
    /// The communicator for a call that begins.
    std::shared_ptr<Joined> enter() const;

    std::shared_ptr<Joined> joined_;
};

}  // namespace tutti_python
