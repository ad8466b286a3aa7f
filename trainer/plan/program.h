// The programs of a step: nodes in an order that is the same on every rank, and their dependencies.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/model/recorder.h"

namespace tutti::trainer {

/// The values that the nodes of one run have in common.
struct RunContext {
    int micro = 0;
    int micro_batches = 1;
    int64_t iteration = 0;
    double loss_scale = 1;             // if samples are not counted
    int64_t total = 0;                 // all replicas' samples, if they are counted
    const int64_t* samples = nullptr;  // device × micro-batches + micro-batch; NULL: all have some

    int64_t samples_of(int device) const {
        return samples ? samples[device * micro_batches + micro] : -1;
    }
    double loss_scale_of(int device) const {
        if (total == 0) return loss_scale;
        return static_cast<double>(samples_of(device)) / static_cast<double>(total);
    }
    bool has_no_samples(int device) const { return device != none && samples_of(device) == 0; }
    /// Whether this step is the last of `every` steps.
    bool is_turn(int every) const { return (iteration + 1) % every == 0; }
};

struct ProgramNode {
    std::string name;   // with its scope, for messages
    int device = none;  // none: of all devices
    std::vector<int> reads, writes;
    std::vector<int> zero;     // gradients whose lifetime begins here
    std::vector<int> adds_up;  // of zero: the gradients that only the first micro-batch clears
    tutti_operation_fn call = nullptr;
    void* user = nullptr;
    std::function<Result<>(const RunContext&)> own;  // the layer's own work, instead of call
    int task = none;                                 // a collective
    bool of_samples = false;                         // nothing to do on a device without samples
    bool updates = false;                            // declared by the update builder
    std::vector<int> before;                         // nodes that must be done first
    std::vector<int> after;
};

struct Program {
    std::vector<ProgramNode> nodes;
};

/// The programs of a step.
struct StepPlan {
    Program micro;  // of each micro-batch except the last
    Program last;   // of the last micro-batch, with collectives and update
};

/// One entry of a device's list: an operation, or its place in a collective of all devices.
struct DeviceItem {
    ProgramNode node;
    std::optional<CollectiveCall> collective;
};
using DeviceItems = std::vector<DeviceItem>;

/// Marks the nodes before which a gradient is set to zero: the first node of each program that uses
/// it. fixed_order: the sums over micro-batches are not made in the dense gradients.
void mark_zeroes(StepPlan& plan, const ModelRecorder& recorder, bool fixed_order);

/// Fills before and after from reads and writes, and from the memory that buffers share.
void find_dependencies(Program& program, const ModelRecorder& recorder);

/// Lets the nodes of the update wait for all collectives of the step, so that the update begins
/// only if none of these has failed. Call it after find_dependencies.
void hold_updates(Program& program);

/// The buffers that a step with hold_updates may have written when one of its collectives fails.
std::vector<bool> written_before_update(const StepPlan& plan, const ModelRecorder& recorder);

}  // namespace tutti::trainer
