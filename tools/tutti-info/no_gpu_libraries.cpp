// A build without GPU support looks for no library.
#include "gpu_libraries.h"

namespace tutti::info {

GpuLibrary cuda_driver() {
    return {"this build of tutti has no GPU support (use a build with -Ddevice=enabled)", false};
}

GpuLibrary nccl() {
    return cuda_driver();
}

void add_gpu_links(Section&) {}

}  // namespace tutti::info
