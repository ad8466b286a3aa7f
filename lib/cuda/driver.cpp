#include "cuda/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <mutex>

namespace tutti::device {
namespace {

constexpr const char* file_name = "libcuda.so.1";
constexpr Status out_of_memory = 2;

std::string last_problem() {
    const char* text = dlerror();
    return text ? text : "no reason given";
}

void* load(void* handle, const char* name, const char* older) {
    void* function = dlsym(handle, name);
    return function ? function : dlsym(handle, older);
}

// Counts the libraries that the process has loaded so far.
uint64_t loaded_libraries() {
    uint64_t count = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            *static_cast<uint64_t*>(data) = info->dlpi_adds;
            return 1;
        },
        &count);
    return count;
}

Result<Driver> open_driver(const std::string& path) {
    const bool own = path.empty();
    const std::string name = own || path == "auto" ? file_name : path;
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | (own ? RTLD_NOLOAD : 0));
    if (!handle)
        return own ? fail(Code::unsupported, "the program has not loaded the CUDA driver ({})",
                          name)
                         .advice(
                             "set TUTTI_CUDA_LIBRARY to auto, or to the driver's path, and tutti "
                             "loads it")
                   : fail(Code::unsupported, "the CUDA driver cannot be loaded from {}: {}", name,
                          last_problem())
                         .advice(
                             "install NVIDIA's driver (start a container with its GPUs: docker "
                             "run --gpus all), or set TUTTI_CUDA_LIBRARY to the driver's path");
    Driver driver;
    driver.path = name;
    const char* missing = nullptr;
#define TUTTI_CUDA_LOAD(member, name, older, ...)                                         \
    driver.member = reinterpret_cast<decltype(driver.member)>(load(handle, name, older)); \
    if (!driver.member) missing = name;
    TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_LOAD)
#undef TUTTI_CUDA_LOAD
    if (missing)
        return fail(Code::unsupported, "the CUDA driver in {} is too old: it has no {}", name,
                    missing)
            .advice("install a newer driver, or set TUTTI_CUDA_LIBRARY to the path of one");
    if (const Status status = driver.init(0); status != success)
        return tl::unexpected(driver_error(driver, status, "starting the CUDA driver in " + name));
    driver.driver_version(&driver.version);
    return driver;
}

}  // namespace

std::atomic<const Driver*> found_driver{nullptr};

Result<const Driver*> find_driver(const std::string& path) {
    if (const Driver* found = driver()) return found;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (const Driver* found = driver()) return found;
    // A search along the library path takes 20 us, and each call of a new shape would repeat it.
    // Its result can change only if the process has loaded another library.
    static struct {
        uint64_t loaded = 0;
        std::string path;
        Error error;
    } missing;
    const uint64_t loaded = loaded_libraries();
    if (loaded == missing.loaded && path == missing.path) return tl::unexpected(missing.error);
    auto opened = open_driver(path);
    if (!opened) {
        missing = {loaded, path, opened.error()};
        return tl::unexpected(missing.error);
    }
    // Never unloaded: nothing tells when its last use is over.
    const Driver* kept = new Driver(*std::move(opened));
    found_driver.store(kept, std::memory_order_release);
    return kept;
}

Error driver_error(const Driver& driver, Status status, const std::string& doing) {
    const char* name = nullptr;
    const char* text = nullptr;
    if (driver.error_name) driver.error_name(status, &name);
    if (driver.error_text) driver.error_text(status, &text);
    const bool memory = status == out_of_memory;
    return {memory ? Code::no_memory : Code::system, nobody, 0,
            fmt::format("{}: {} ({})", doing, name ? name : fmt::format("CUDA error {}", status),
                        text ? text : "no text"),
            memory ? "free memory of the GPU; nvidia-smi lists the processes that use it"
                   : "look at nvidia-smi and the log of the machine (dmesg), and start the process "
                     "again"};
}

}  // namespace tutti::device
