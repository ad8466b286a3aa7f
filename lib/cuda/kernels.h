// tutti's own kernels, an image that the driver loads.
#pragma once

#include <string>
#include <string_view>

#include "cuda/handles.h"

namespace tutti::device {

class Kernels {
public:
    /// If the image has no machine code for the device, the driver compiles it, which takes seconds
    /// the first time. May wait for the device. unsupported for an empty image.
    static Result<Kernels> load(const Context& context, std::string_view image);
    Kernels(Kernels&& other) noexcept
        : context_(other.context_), module_(std::exchange(other.module_, nullptr)) {}
    Kernels& operator=(Kernels&&) = delete;
    ~Kernels();

    Result<KernelHandle> find(const std::string& name) const;
    /// The context is current. Parameters are copied.
    Result<> launch(KernelHandle kernel, unsigned blocks, unsigned threads, StreamHandle stream,
                    void** parameters) const;

private:
    Kernels(const Context& context, ModuleHandle module) : context_(context), module_(module) {}
    Context context_;
    ModuleHandle module_;
};

}  // namespace tutti::device
