// Little-endian encoding with every length checked: all code that parses a peer's bytes uses these
// two classes.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/types.h"

namespace tutti {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline ByteView as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteView bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteWriter {
public:
    template <typename T>
    requires std::is_trivially_copyable_v<T> ByteWriter& put(const T& value) {
        const auto* p = reinterpret_cast<const std::byte*>(&value);
        out_.insert(out_.end(), p, p + sizeof value);
        return *this;
    }
    /// A 32-bit length, then the bytes.
    ByteWriter& put_text(std::string_view text) {
        put(static_cast<uint32_t>(text.size()));
        const ByteView bytes = as_bytes(text);
        out_.insert(out_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    Bytes take() { return std::move(out_); }

private:
    Bytes out_;
};

/// Reads what ByteWriter wrote. Running past the end makes ok() false and yields zeros, so a parser
/// reads all its fields and checks once.
class ByteReader {
public:
    explicit ByteReader(ByteView in) : in_(in) {}

    template <typename T>
    requires std::is_trivially_copyable_v<T> T get() {
        T value{};
        if (take(sizeof value)) std::memcpy(&value, in_.data() + at_ - sizeof value, sizeof value);
        return value;
    }
    /// A value of an enum that has all values from first to last; any other value makes ok() false,
    /// too.
    template <typename E>
    requires std::is_enum_v<E> E get_enum(E first, E last) {
        const E value = get<E>();
        if (value < first || value > last) ok_ = false;
        return value;
    }
    std::string get_text(uint32_t max_bytes) {
        const auto bytes = get<uint32_t>();
        if (bytes > max_bytes || !take(bytes)) {
            ok_ = false;
            return {};
        }
        return std::string(as_text(in_.subspan(at_ - bytes, bytes)));
    }
    bool ok() const { return ok_; }
    bool at_end() const { return ok_ && at_ == in_.size(); }

private:
    bool take(std::size_t bytes) {
        if (!ok_ || in_.size() - at_ < bytes) return ok_ = false;
        at_ += bytes;
        return true;
    }
    ByteView in_;
    std::size_t at_ = 0;
    bool ok_ = true;
};

}  // namespace tutti
