// The backward pass, derived from the declarations of the forward builders.
#pragma once

#include "trainer/plan/program.h"

namespace tutti::trainer {

/// Declares the missing gradients: of every parameter, and of the buffers between a parameter and a
/// loss. With external autograd only the parameters'.
Result<> declare_gradients(ModelRecorder& recorder, bool external);

/// A device's items of a phase, as declared.
DeviceItems items_of(const ModelRecorder& recorder, int device, BuilderPhase phase,
                     std::vector<struct tutti_device*> const& devices);
/// The reverse of the forward operations that lead to a loss. Declares the gradients that it needs.
Result<DeviceItems> backward_items(ModelRecorder& recorder, int device, int replica, int replicas,
                                   std::vector<struct tutti_device*> const& devices);

/// Merges the devices' lists into one order: round-robin, and together at each collective. Calls
/// joined for each collective, with the node that all devices share.
Result<> merge(Program& program, std::vector<DeviceItems> lists, const ModelRecorder& recorder,
               const std::function<void(ProgramNode&, const std::vector<DeviceItem>&)>& joined);

}  // namespace tutti::trainer
