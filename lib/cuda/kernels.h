// Kernels of our own, as an image that the driver loads.
#pragma once

#include <string>
#include <string_view>

#include "cuda/handles.h"

namespace tutti::device {

class Kernels {
public:
    /// The driver compiles what it has no machine code for: seconds, at the first time. It may wait
    /// for the device. unsupported for an image that is empty.
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
