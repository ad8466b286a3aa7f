// The declarations of the builders for all local devices: buffers and operations in their order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/base/result.h"
#include "tutti/trainer.h"

namespace tutti::trainer {

constexpr int none = -1;

/// The name of the layer's counter of steps, a buffer of each device.
inline constexpr const char* iteration_name = "iteration";

struct Buffer {
    std::string name;  // without the device's scope
    int device = 0;
    tutti_buffer_kind kind = TUTTI_PARAMETER;
    tutti_dtype dtype = TUTTI_FLOAT32;
    std::size_t bytes = 0;
    std::vector<int64_t> shape;
    uint32_t flags = 0;
    int gradient = none;
    int gradient_of = none;
    int sparse_rows = none, sparse_count = none;  // buffers beside gradient, of a sparse parameter
    int64_t total_rows = 0, first_row = 0, own_rows = 0;  // of a distributed one
    void* data = nullptr;
    bool shares_memory = false;
    bool counts_steps = false;  // int64, of kind state

    std::size_t count() const { return bytes / tutti_dtype_size(dtype); }
    bool distributed() const { return (flags & TUTTI_DISTRIBUTED) != 0; }
    /// Part of a model's state: synchronised, or a shard, and saved in a checkpoint.
    bool kept() const {
        return kind == TUTTI_PARAMETER || kind == TUTTI_COMPUTED || kind == TUTTI_STATE;
    }
    bool sparse() const { return sparse_rows != none; }
    /// A parameter whose gradient is reduced together with others'.
    bool bucketed() const { return kind == TUTTI_PARAMETER && !distributed() && !sparse(); }
    std::string full_name() const { return fmt::format("device_{}/{}", device, name); }
};

enum class BuilderPhase : uint8_t { input, forward, update };

struct CollectiveCall {
    tutti_collective_kind kind = TUTTI_COLLECTIVE_ALLREDUCE;
    tutti_op op = TUTTI_SUM;
    int root = 0;
    tutti_backward_convention backward = TUTTI_BACKWARD_SUM;
};

struct DeclaredOperation {
    std::string name;
    int device = 0;
    BuilderPhase phase = BuilderPhase::forward;
    std::vector<int> reads, writes;
    tutti_operation_fn forward = nullptr, backward = nullptr;
    void* user = nullptr;
    std::optional<CollectiveCall> collective;
    bool copies = false;  // reads to writes, possibly from another device

    std::string full_name() const { return fmt::format("device_{}/{}", device, name); }
};

class ModelRecorder {
public:
    explicit ModelRecorder(int devices) : devices_(devices) {}

    Result<int> add(Buffer buffer);
    void add(DeclaredOperation operation) { operations_.push_back(std::move(operation)); }
    /// none if there is no such buffer.
    int find(int device, const std::string& name) const;
    /// The buffer, or an error that names the device or the name that is wrong.
    Result<const Buffer*> look_up(int device, const std::string& name) const;
    int devices() const { return devices_; }

    std::deque<Buffer>& buffers() { return buffers_; }
    const std::deque<Buffer>& buffers() const { return buffers_; }
    Buffer& buffer(int index) { return buffers_[static_cast<std::size_t>(index)]; }
    const Buffer& buffer(int index) const { return buffers_[static_cast<std::size_t>(index)]; }
    const std::vector<DeclaredOperation>& operations() const { return operations_; }
    bool valid(int index) const {
        return index >= 0 && static_cast<std::size_t>(index) < buffers_.size();
    }
    /// A device's buffers of a kind, in the order of declaration.
    std::vector<int> of_kind(int device, tutti_buffer_kind kind) const;

    std::vector<std::vector<int>> losses;  // by device
    struct Initial {
        int buffer;
        double value;
    };
    std::vector<Initial> initial;  // of learning rates

private:
    int devices_;
    std::deque<Buffer> buffers_;  // a deque: callers keep pointers to names, so none moves
    std::vector<DeclaredOperation> operations_;
    std::unordered_map<std::string, int> by_name_;  // with the device's scope
};

}  // namespace tutti::trainer

/// One device's scope, as the builders see it.
struct tutti_model {
    template <typename T = void>
    using Result = tutti::trainer::Result<T>;

    tutti::trainer::ModelRecorder* recorder = nullptr;
    int device = 0;
    int replica = 0;
    int replicas = 1;
    int micro_batches = 1;
    tutti::trainer::BuilderPhase phase = tutti::trainer::BuilderPhase::forward;
    const char* builder = "forward builder";
    std::vector<std::string> scopes;

    std::string scoped(const std::string& name) const;
    Result<int> declare(const tutti_buffer_spec& spec);
    Result<int> find(const std::string& name) const;
    Result<> operation(const tutti_operation_spec& spec);
    Result<> collective(const tutti_collective_spec& spec);
    Result<> copy(const char* name, tutti_buffer from, tutti_buffer to);
    Result<> enter(const char* name);
    Result<> leave();

private:
    Result<int> declare_gradient(const tutti_buffer_spec& spec, tutti::trainer::Buffer buffer);
    Result<int> declare_sparse(int parameter, int64_t rows);
    Result<> set_rows(tutti::trainer::Buffer& buffer, int64_t total_rows) const;
    Result<> check_handles(const std::string& operation, const tutti_buffer* list,
                           std::size_t count, const char* what) const;
};

struct tutti_losses {
    tutti_model* model = nullptr;
    std::vector<int> list;
    tutti::trainer::Result<> add(int buffer);
};
