// One program for all targets, as libFuzzer wants it: TUTTI_FUZZ_TARGET says which (tools/fuzz).
#include <cstdint>

#include "base/log.h"
#include "fuzz/fuzz.h"

namespace {

const tutti::fuzz::Target& chosen() {
    tutti::log::set_level(tutti::log::Level::off);
    const char* name = std::getenv("TUTTI_FUZZ_TARGET");
    for (const auto& target : tutti::fuzz::targets())
        if (name && target.name == name) return target;
    tutti::fuzz::require(false, "TUTTI_FUZZ_TARGET names no target");
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    static const tutti::fuzz::Target& target = chosen();
    target.run({reinterpret_cast<const std::byte*>(data), size});
    return 0;
}
