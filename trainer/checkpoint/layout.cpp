#include "trainer/checkpoint/layout.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "trainer/checkpoint/entries.h"

namespace tutti::trainer::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_key = "tutti.format";
constexpr std::string_view header_key = "tutti.header_crc32";
constexpr std::string_view entry_key = "tutti.crc32.";
constexpr std::string_view metadata_key = "__metadata__";
constexpr std::size_t digits = 8;

struct TypeName {
    tutti_dtype dtype;
    std::string_view name;
};
constexpr std::array type_names = {TypeName{TUTTI_INT8, "I8"},
                                   TypeName{TUTTI_UINT8, "U8"},
                                   TypeName{TUTTI_INT16, "I16"},
                                   TypeName{TUTTI_UINT16, "U16"},
                                   TypeName{TUTTI_INT32, "I32"},
                                   TypeName{TUTTI_UINT32, "U32"},
                                   TypeName{TUTTI_INT64, "I64"},
                                   TypeName{TUTTI_UINT64, "U64"},
                                   TypeName{TUTTI_FLOAT16, "F16"},
                                   TypeName{TUTTI_BFLOAT16, "BF16"},
                                   TypeName{TUTTI_FLOAT32, "F32"},
                                   TypeName{TUTTI_FLOAT64, "F64"},
                                   TypeName{TUTTI_FLOAT8_E4M3, "F8_E4M3"},
                                   TypeName{TUTTI_FLOAT8_E5M2, "F8_E5M2"}};

std::string_view name_of(tutti_dtype dtype) {
    const auto* found = std::find_if(type_names.begin(), type_names.end(),
                                     [&](const TypeName& t) { return t.dtype == dtype; });
    return found == type_names.end() ? "" : found->name;
}

tutti_dtype dtype_named(std::string_view name) {
    const auto* found = std::find_if(type_names.begin(), type_names.end(),
                                     [&](const TypeName& t) { return t.name == name; });
    return found == type_names.end() ? -1 : found->dtype;
}

std::optional<uint32_t> parse_checksum(std::string_view text) {
    uint32_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    // Lower case only, so that there is one text for each value.
    if (text.size() != digits || fmt::format("{:08x}", value) != text || error != std::errc() ||
        stop != text.data() + text.size())
        return std::nullopt;
    return value;
}

std::string quoted(const std::string& text) {
    return Json(text).dump();
}

/// The position of the header's own checksum in its text; npos if it has none.
std::size_t own_checksum_at(std::string_view json) {
    const std::string before = fmt::format("\"{}\":\"", header_key);
    const std::size_t at = json.find(before);
    if (at == json.npos || at + before.size() + digits > json.size()) return json.npos;
    return at + before.size();
}

/// The checksum of the text with zeros for that checksum's own digits.
uint32_t own_checksum(std::string_view json, std::size_t at) {
    uint32_t sum = checksum_of(0, json.data(), at);
    sum = checksum_of(sum, "00000000", digits);
    return checksum_of(sum, json.data() + at + digits, json.size() - at - digits);
}

ErrorResult damaged(std::string_view what) {
    return fail(TUTTI_ERR_INVALID, "the file is damaged: {}", what)
        .advice("take an earlier checkpoint, or another copy of this file");
}

Result<> check_own_checksum(std::string_view json) {
    const std::size_t at = own_checksum_at(json);
    if (at == json.npos) return {};  // the format number tells whether it must have one
    const auto stored = parse_checksum(json.substr(at, digits));
    if (stored && *stored == own_checksum(json, at)) return {};
    return damaged("its header does not match the header's checksum");
}

Result<StoredEntry> parse_entry(const std::string& name, const Json& json) {
    const auto bad = [&](std::string_view what) {
        return damaged(fmt::format("entry '{}': {}", name, what));
    };
    if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
        !json.contains("shape") || !json["shape"].is_array() || !json.contains("data_offsets") ||
        !json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
        return bad("its description has no dtype, shape and data_offsets");
    StoredEntry stored{.name = name, .dtype = dtype_named(json["dtype"].get<std::string>())};
    if (stored.dtype < 0)
        return fail(TUTTI_ERR_INVALID, "entry '{}' has the unknown dtype {}", name,
                    json["dtype"].get<std::string>())
            .advice("update tutti, or save the entry with another dtype");
    for (const Json& extent : json["shape"]) {
        if (!extent.is_number_unsigned() || extent.get<uint64_t>() > INT64_MAX)
            return bad("its shape has something else than extents");
        stored.shape.push_back(extent.get<int64_t>());
    }
    for (const Json& offset : json["data_offsets"])
        if (!offset.is_number_unsigned()) return bad("its data_offsets are not offsets");
    stored.begin = json["data_offsets"][0].get<uint64_t>();
    stored.end = json["data_offsets"][1].get<uint64_t>();
    const auto bytes = checked_bytes(stored.dtype, stored.shape);
    if (!bytes) return bad(bytes.error().message);
    if (stored.end < stored.begin || stored.end - stored.begin != *bytes)
        return bad(fmt::format("its data_offsets are not those of its {} bytes", *bytes));
    return stored;
}

Result<int> parse_format(const Json& metadata) {
    const std::string key(format_key);
    int version = 0;
    if (metadata.contains(key)) {
        const std::string text = metadata[key].get<std::string>();
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), version);
        if (error != std::errc() || stop != text.data() + text.size()) version = 0;
    }
    if (version < 1)
        return fail(TUTTI_ERR_INVALID,
                    "it is not a tutti checkpoint: its metadata has no {}, as another program "
                    "wrote it",
                    format_key)
            .advice("read it with the program that wrote it, and save it with tutti");
    if (version > format_version)
        return fail(TUTTI_ERR_INVALID,
                    "it has format {}, written by a newer version of tutti; this one ({}) reads "
                    "formats up to {}",
                    version, tutti_version(), format_version)
            .advice("update tutti, or save the checkpoint with this version");
    return version;
}

Result<> read_metadata(const Json& metadata, FileHeader& header) {
    for (const auto& [key, value] : metadata.items())
        if (!value.is_string()) return damaged(fmt::format("metadata '{}' is not a text", key));
    TRAINER_TRY(parse_format(metadata));
    if (!metadata.contains(std::string(header_key)))
        return damaged("its header has no checksum of itself");
    for (const auto& [key, value] : metadata.items())
        if (!key.starts_with(reserved_prefix)) header.texts[key] = value.get<std::string>();
    for (StoredEntry& entry : header.entries) {
        const std::string key = fmt::format("{}{}", entry_key, entry.name);
        if (!metadata.contains(key))
            return damaged(fmt::format("entry '{}' has no checksum", entry.name));
        const auto sum = parse_checksum(metadata[key].get<std::string>());
        if (!sum)
            return damaged(fmt::format("entry '{}': its checksum is not a number", entry.name));
        entry.checksum = *sum;
    }
    return {};
}

/// The entries lie one after the other and fill the data.
Result<> check_places(std::vector<StoredEntry>& entries, uint64_t data_bytes) {
    std::sort(entries.begin(), entries.end(), [](const StoredEntry& a, const StoredEntry& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t at = 0;
    for (const StoredEntry& entry : entries) {
        if (entry.begin != at)
            return damaged(fmt::format("entry '{}' begins at byte {} of the data, not {}",
                                       entry.name, entry.begin, at));
        at = entry.end;
        if (at > data_bytes)
            return fail(TUTTI_ERR_INVALID,
                        "the file was cut short: entry '{}' ends at byte {} of the data, of which "
                        "there are {}",
                        entry.name, at, data_bytes)
                .advice("copy the file again, or take an earlier checkpoint");
    }
    if (at != data_bytes)
        return damaged(fmt::format("{} bytes follow its last entry", data_bytes - at));
    return {};
}

}  // namespace

uint32_t checksum_of(uint32_t before, const void* data, std::size_t bytes) {
    return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(data), bytes));
}

// Written by hand: the entries keep the file's order, which nlohmann::json would lose, and
// ordered_json compares each new key with all earlier ones.
std::string write_header(const FileHeader& header) {
    std::string text = fmt::format(R"({{"{}":{{"{}":"{}","{}":"{}")", metadata_key, format_key,
                                   format_version, header_key, std::string(digits, '0'));
    for (const StoredEntry& entry : header.entries)
        text += fmt::format(R"(,{}:"{:08x}")", quoted(fmt::format("{}{}", entry_key, entry.name)),
                            entry.checksum);
    for (const auto& [key, value] : header.texts)
        text += fmt::format(",{}:{}", quoted(key), quoted(value));
    text += "}";
    for (const StoredEntry& entry : header.entries)
        text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                            quoted(entry.name), name_of(entry.dtype), fmt::join(entry.shape, ","),
                            entry.begin, entry.end);
    text += "}";
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::size_t at = own_checksum_at(text);
    text.replace(at, digits, fmt::format("{:08x}", own_checksum(text, at)));
    std::string length(length_bytes, '\0');
    for (std::size_t i = 0; i < length_bytes; ++i)
        length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
    return length + text;
}

Result<FileHeader> parse_header(std::string_view text, uint64_t data_bytes) {
    TRAINER_TRY(check_own_checksum(text));
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded() || !json.is_object()) return damaged("its header is not JSON");
    const std::string metadata(metadata_key);
    if (!json.contains(metadata) || !json[metadata].is_object()) {
        TRAINER_TRY(parse_format(Json::object()));
    }
    FileHeader header;
    for (const auto& [key, value] : json.items()) {
        if (key == metadata_key) continue;
        TRAINER_ASSIGN(StoredEntry entry, parse_entry(key, value));
        header.entries.push_back(std::move(entry));
    }
    TRAINER_TRY(read_metadata(json[metadata], header));
    TRAINER_TRY(check_places(header.entries, data_bytes));
    return header;
}

}  // namespace tutti::trainer::checkpoint
