// The part of the UCX port that messages from and to a GPU's memory need. cuda_messages.cpp has it
// with Meson's feature `device`, no_cuda_messages.cpp the answers of a library without GPU code.
#pragma once

#include <memory>

#include "fabric/port.h"
#include "transports/ucx/library.h"

namespace tutti::ucx {

class UcxPort;

class CudaMessages : public fabric::PortDevices {
public:
    virtual ~CudaMessages() = default;
    /// The worker's own. UCX's copies to and from a device want its context to be current on the
    /// thread.
    virtual bool progress() = 0;
};

/// For a port whose UCX knows devices. nullptr if this library has no GPU code.
std::unique_ptr<CudaMessages> make_cuda_messages(UcxPort& port);
extern const bool has_cuda_messages;

}  // namespace tutti::ucx
