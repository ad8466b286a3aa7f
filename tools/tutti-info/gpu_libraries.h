// The libraries that collectives on NVIDIA's GPUs need, and their information about the GPUs.
#pragma once

#include <string>

#include "report.h"

namespace tutti::info {

/// The library's name and version, or the reason why it cannot be used.
struct GpuLibrary {
    std::string text;
    bool usable = false;
};

GpuLibrary cuda_driver();
GpuLibrary nccl();
/// Adds a row for each GPU of the driver: its links to each other GPU.
void add_gpu_links(Section& out);

}  // namespace tutti::info
