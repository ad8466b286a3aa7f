#include "cuda/kernels.h"

namespace tutti::device {

Result<Kernels> Kernels::load(const Context& context, std::string_view image) {
    if (image.empty())
        return fail(Code::unsupported, "this build has no GPU kernels: nvcc was missing")
            .advice("install nvcc (the CUDA toolkit), and build tutti again");
    const Context::Scope current(context);
    ModuleHandle module = nullptr;
    TUTTI_TRY(check(context.driver(), context.driver().module_load(&module, image.data()),
                    "loading the GPU kernels"));
    return Kernels(context, module);
}

Kernels::~Kernels() {
    if (!module_) return;
    const Context::Scope current(context_);
    context_.driver().module_unload(module_);
}

Result<KernelHandle> Kernels::find(const std::string& name) const {
    const Context::Scope current(context_);
    KernelHandle kernel = nullptr;
    TUTTI_TRY(check(context_.driver(),
                    context_.driver().module_function(&kernel, module_, name.c_str()),
                    "looking up a GPU kernel"));
    return kernel;
}

Result<> Kernels::launch(KernelHandle kernel, unsigned blocks, unsigned threads,
                         StreamHandle stream, void** parameters) const {
    return check(context_.driver(),
                 context_.driver().launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream,
                                                 parameters, nullptr),
                 "launching a GPU kernel");
}

}  // namespace tutti::device
