// Fuzz targets: functions that take any bytes where a peer's, a file's or a stranger's would come.
// Each one returns, or it has found a fault. replay.cpp runs the kept inputs in every check;
// libfuzzer.cpp looks for new ones (tools/fuzz).
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace tutti::fuzz {

struct Target {
    std::string_view name;
    void (*run)(ByteView input);
    /// Inputs that are well-formed, made by tutti's own encoders.
    std::vector<Bytes> (*seeds)();
};
/// The catalog.
std::span<const Target> targets();

/// A fault that no sanitizer sees.
inline void require(bool holds, std::string_view what) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
}

inline Bytes to_bytes(std::string_view text) {
    const ByteView view = as_bytes(text);
    return {view.begin(), view.end()};
}

inline Bytes joined(std::span<const Bytes> parts) {
    std::size_t bytes = 0;
    for (const Bytes& part : parts) bytes += part.size();
    Bytes out(bytes);
    auto at = out.begin();
    for (const Bytes& part : parts) at = std::copy(part.begin(), part.end(), at);
    return out;
}
inline Bytes joined(std::initializer_list<Bytes> parts) {
    return joined(std::span(parts.begin(), parts.size()));
}

/// Cuts an input into what a target needs. Past the end there are zeros.
class Input {
public:
    explicit Input(ByteView left) : left_(left) {}
    bool empty() const { return left_.empty(); }
    /// So many bytes, or what there is.
    ByteView take(std::size_t bytes) {
        const ByteView taken = left_.first(std::min(bytes, left_.size()));
        left_ = left_.subspan(taken.size());
        return taken;
    }
    template <typename T>
    T get() {
        T value{};
        const ByteView taken = take(sizeof value);
        if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
        return value;
    }
    ByteView rest() { return take(left_.size()); }

private:
    ByteView left_;
};

}  // namespace tutti::fuzz
