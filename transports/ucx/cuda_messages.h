// The part of the UCX port for messages from and to a GPU's memory. cuda_messages.cpp implements it
// with Meson's feature `device`; no_cuda_messages.cpp is for a library without GPU code.
#pragma once

#include <memory>

#include "fabric/port.h"
#include "transports/ucx/library.h"

namespace tutti::ucx {

class UcxPort;

class CudaMessages : public fabric::PortDevices {
public:
    virtual ~CudaMessages() = default;
    /// Progress of the port's worker. UCX's copies to and from a device need its context to be
    /// current on the thread.
    virtual bool progress() = 0;
};

/// For a port whose UCX supports devices. nullptr if this library has no GPU code.
std::unique_ptr<CudaMessages> make_cuda_messages(UcxPort& port);
extern const bool has_cuda_messages;

}  // namespace tutti::ucx
