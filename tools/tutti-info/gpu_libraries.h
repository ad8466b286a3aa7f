// The libraries that collectives on NVIDIA's GPUs need, and what they say of the GPUs.
#pragma once

#include <string>

#include "report.h"

namespace tutti::info {

/// Which library it is, or why there is none.
struct GpuLibrary {
    std::string text;
    bool usable = false;
};

GpuLibrary cuda_driver();
GpuLibrary nccl();
/// A row for each GPU that the driver shows: what lies between it and each of the others.
void add_gpu_links(Section& out);

}  // namespace tutti::info
