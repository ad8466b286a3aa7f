// The backward pass, derived from what the forward builders declared.
#pragma once

#include "trainer/plan/program.h"

namespace tutti::trainer {

/// Declares the gradients that are missing: of every parameter, and of what lies between a
/// parameter and a loss. With external autograd only the parameters'.
Result<> declare_gradients(ModelRecorder& recorder, bool external);

/// A device's items of a phase, as declared.
DeviceItems items_of(const ModelRecorder& recorder, int device, BuilderPhase phase,
                     std::vector<struct tutti_device*> const& devices);
/// The reverse of the forward operations that lead to a loss. Declares what it needs on the way.
Result<DeviceItems> backward_items(ModelRecorder& recorder, int device, int replica, int replicas,
                                   std::vector<struct tutti_device*> const& devices);

/// Joins the devices' lists into one order: turn by turn, and together at each collective. Calls
/// joined for each, with the node that all devices share.
Result<> merge(Program& program, std::vector<DeviceItems> lists, const ModelRecorder& recorder,
               const std::function<void(ProgramNode&, const std::vector<DeviceItem>&)>& joined);

}  // namespace tutti::trainer
