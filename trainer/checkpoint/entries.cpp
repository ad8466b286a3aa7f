#include "trainer/checkpoint/entries.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace tutti::trainer::checkpoint {
namespace {

constexpr std::string_view scope_prefix = "device_";

constexpr bool is_control(char c) {
    return static_cast<unsigned char>(c) < 0x20;
}

Result<> check_name(const char* whole, std::string_view name) {
    if (name.empty())
        return fail(TUTTI_ERR_INVALID, "checkpoint: entry '{}' has no name", whole)
            .advice("give the entry a name, after device_N/ too");
    // The layout uses this key for its metadata.
    if (name == "__metadata__")
        return fail(TUTTI_ERR_INVALID, "checkpoint: an entry cannot be named __metadata__")
            .advice("choose another name");
    const bool control = std::any_of(name.begin(), name.end(), is_control);
    if (control || !is_utf8(name))
        return fail(TUTTI_ERR_INVALID, "checkpoint: the name of entry '{}' {}", escaped(whole),
                    control ? "has a control character" : "is not UTF-8")
            .advice("use a name of printable UTF-8 characters");
    return {};
}

Result<> check_agrees(const char* whole, const StateEntry& entry, const StateEntry& known) {
    if (known.sharded != entry.sharded)
        return fail(TUTTI_ERR_INVALID,
                    "checkpoint: entry '{}' is a shard on one device, whole on another", whole)
            .advice("add it as a shard on every device, or on none");
    if (known.dtype != entry.dtype || known.shape != entry.shape)
        return fail(TUTTI_ERR_INVALID, "checkpoint: entry '{}' is {}, but {} on another device",
                    whole, describe(entry.dtype, entry.shape), describe(known.dtype, known.shape))
            .advice("add it with the same dtype and shape on every device");
    return {};
}

ErrorResult too_large() {
    return fail(TUTTI_ERR_INVALID, "its shape is more than memory can hold")
        .advice("correct the shape");
}

}  // namespace

uint64_t StateEntry::bytes() const {
    uint64_t bytes = tutti_dtype_size(dtype);
    for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
    return bytes;
}

uint64_t StateEntry::row_bytes() const {
    uint64_t bytes = tutti_dtype_size(dtype);
    for (std::size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<uint64_t>(shape[i]);
    return bytes;
}

bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t more = lead < 0x80                    ? 0
                                 : lead >= 0xc2 && lead < 0xe0  ? 1
                                 : lead >= 0xe0 && lead < 0xf0  ? 2
                                 : lead >= 0xf0 && lead <= 0xf4 ? 3
                                                                : text.size();
        if (more >= text.size() - i) return false;
        // Refuses overlong forms, surrogates, and values past the last code point.
        const auto second = static_cast<unsigned char>(more > 0 ? text[i + 1] : 0);
        if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
            (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
            return false;
        for (std::size_t k = 1; k <= more; ++k)
            if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
        i += more + 1;
    }
    return true;
}

std::string escaped(std::string_view text) {
    const bool plain = is_utf8(text);
    std::string safe;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_control(c) || (!plain && byte >= 0x80))
            safe += fmt::format("\\x{:02x}", byte);
        else
            safe += c;
    }
    return safe;
}

ScopedName parse_scope(std::string_view name) {
    const std::size_t slash = name.find('/');
    if (slash == name.npos || !name.starts_with(scope_prefix)) return {0, name};
    const char* end = name.data() + slash;
    int device = -1;
    const auto [stop, error] = std::from_chars(name.data() + scope_prefix.size(), end, device);
    if (error != std::errc() || stop != end || device < 0) return {0, name};
    return {device, name.substr(slash + 1)};
}

Result<uint64_t> checked_bytes(tutti_dtype dtype, const std::vector<int64_t>& shape) {
    uint64_t bytes = tutti_dtype_size(dtype);
    if (bytes == 0)
        return fail(TUTTI_ERR_INVALID, "unknown dtype {}", dtype)
            .advice("use a constant of tutti_dtype, such as TUTTI_FLOAT32");
    bool empty = false;
    for (const int64_t extent : shape) {
        if (extent < 0)
            return fail(TUTTI_ERR_INVALID, "its shape has a negative extent of {}", extent)
                .advice("use extents of 0 or more");
        empty = empty || extent == 0;
        if (extent > 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
            return too_large();
    }
    if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return too_large();
    return empty ? 0 : bytes;
}

std::string describe(tutti_dtype dtype, const std::vector<int64_t>& shape) {
    const char* name = tutti_dtype_name(dtype);
    return fmt::format("{} of {}", name ? name : "no type",
                       shape.empty() ? "1 element" : fmt::format("{}", fmt::join(shape, " × ")));
}

Result<> add_part(Entries& entries, const char* whole, StateEntry entry, EntryPart part) {
    const auto [device, name] = parse_scope(whole);
    TRAINER_TRY(check_name(whole, name));
    const auto bytes = checked_bytes(entry.dtype, entry.shape);
    if (!bytes)
        return fail(TUTTI_ERR_INVALID, "checkpoint: entry '{}': {}", whole, bytes.error().message)
            .advice("{}", bytes.error().advice);
    if (part.rows < 0 || part.first_row < 0 || part.first_row > entry.rows() ||
        part.rows > entry.rows() - part.first_row)
        return fail(TUTTI_ERR_INVALID,
                    "checkpoint: entry '{}': {} rows from row {} on are not among its {}", whole,
                    part.rows, part.first_row, entry.rows())
            .advice("pass first_row and rows of 0 or more whose sum is at most {}", entry.rows());
    if (part.data == nullptr && part.rows > 0 && *bytes > 0)
        return fail(TUTTI_ERR_INVALID, "checkpoint: entry '{}': its data is NULL", whole)
            .advice("pass a pointer that is not NULL");
    part.device = device;
    auto [found, is_new] = entries.try_emplace(std::string(name), entry);
    StateEntry& known = found->second;
    if (!is_new) TRAINER_TRY(check_agrees(whole, entry, known));
    const bool twice = std::any_of(known.parts.begin(), known.parts.end(),
                                   [&](const EntryPart& p) { return p.device == part.device; });
    if (twice)
        return fail(TUTTI_ERR_INVALID, "checkpoint: entry '{}' was added before", whole)
            .advice("add each entry once for each device");
    known.parts.push_back(part);
    std::sort(known.parts.begin(), known.parts.end(), [&](const EntryPart& a, const EntryPart& b) {
        if (known.sharded && a.first_row != b.first_row) return a.first_row < b.first_row;
        return a.device < b.device;
    });
    return {};
}

}  // namespace tutti::trainer::checkpoint
