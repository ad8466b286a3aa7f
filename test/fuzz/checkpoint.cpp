// A checkpoint's header, which may be damaged or made by anyone.
#include <algorithm>
#include <cinttypes>

#include "base/version.h"
#include "fuzz/catalog.h"
#include "reduce/reduce.h"
#include "trainer/checkpoint/layout.h"

// The checkpoint is of the trainer layer, which sees only the C API: what it needs of that.
const char* tutti_version(void) {
    return tutti::version().data();
}
size_t tutti_dtype_size(tutti_dtype dtype) {
    const bool known = dtype >= 0 && dtype < tutti::dtype_count;
    return known ? tutti::dtype_bytes(static_cast<tutti::Dtype>(dtype)) : 0;
}
const char* tutti_dtype_name(tutti_dtype dtype) {
    const bool known = dtype >= 0 && dtype < tutti::dtype_count;
    return known ? tutti::dtype_name(static_cast<tutti::Dtype>(dtype)).data() : nullptr;
}

namespace tutti::fuzz {
namespace {

using namespace trainer::checkpoint;

constexpr std::string_view checksum_key = "\"tutti.header_crc32\":\"";
constexpr std::size_t checksum_digits = 8;

// A fuzzer does not guess checksums: the header gets the right one.
std::string with_checksum(std::string text) {
    const std::size_t at = text.find(checksum_key) + checksum_key.size();
    if (text.find(checksum_key) == text.npos || at + checksum_digits > text.size()) return text;
    std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), checksum_digits, '0');
    char digits[checksum_digits + 1];
    std::snprintf(digits, sizeof digits, "%08" PRIx32, checksum_of(0, text.data(), text.size()));
    return text.replace(at, checksum_digits, digits, checksum_digits);
}

}  // namespace

// The bytes of data behind the header (8), then its JSON.
void run_checkpoint_header(ByteView input) {
    Input in(input);
    const auto data_bytes = in.get<uint64_t>();
    const auto header = parse_header(with_checksum(std::string(as_text(in.rest()))), data_bytes);
    if (!header) return require(!header.error().message.empty(), "an error without a reason");
    uint64_t at = 0;
    for (const StoredEntry& entry : header->entries) {
        require(entry.begin == at && entry.end >= at && entry.end <= data_bytes,
                "an entry lies outside of the file");
        at = entry.end;
    }
    const std::string again = write_header(*header);
    const auto same = parse_header(std::string_view(again).substr(length_bytes), data_bytes);
    require(same && same->entries.size() == header->entries.size() && same->texts == header->texts,
            "a header that was read cannot be written");
}

std::vector<Bytes> seeds_checkpoint_header() {
    FileHeader header;
    header.texts = {{"epoch", "12"}};
    header.entries = {
        {.name = "fc/weight", .dtype = TUTTI_FLOAT32, .shape = {3, 4}, .begin = 0, .end = 48},
        {.name = "step", .dtype = TUTTI_INT64, .shape = {}, .begin = 48, .end = 56}};
    const auto seed = [](const FileHeader& of, uint64_t data_bytes) {
        return joined({ByteWriter().put(data_bytes).take(),
                       to_bytes(std::string_view(write_header(of)).substr(length_bytes))});
    };
    return {seed(header, 56), seed({}, 0)};
}

}  // namespace tutti::fuzz
