#include <algorithm>
#include <charconv>
#include <optional>

#include "fabric/header.h"

namespace tutti::fabric {
namespace {

constexpr std::size_t max_ports = 64;

std::string hex(const Bytes& bytes) {
    std::string out;
    for (const std::byte b : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(b));
    return out;
}

template <typename T>
std::optional<T> parse(std::string_view text) {
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

std::optional<Bytes> parse_bytes(std::string_view text) {
    if (text.empty() || text.size() % 2 != 0) return std::nullopt;
    Bytes out;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const auto value = parse<uint8_t>(text.substr(i, 2));
        if (!value) return std::nullopt;
        out.push_back(std::byte{*value});
    }
    return out;
}

std::string_view next_word(std::string_view& text) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
}

}  // namespace

std::string encode_address(std::string_view name, const Address& address) {
    std::string out =
        fmt::format("{} {} {:x} {:x}", name, address.version, protocol_version, address.nonce);
    for (const Bytes& port : address.ports) out += " " + hex(port);
    return out;
}

Result<Address> decode_address(std::string_view name, std::string_view our_version,
                               std::string_view text) {
    const auto malformed = [&] {
        return fail(Code::invalid, "'{}' is not an address of {}", text.substr(0, 80), name)
            .advice("install the same version of tutti on every host");
    };
    Address out;
    if (next_word(text) != name) return malformed();
    out.version = next_word(text);
    const auto protocol = parse<uint32_t>(next_word(text));
    const auto nonce = parse<decltype(out.nonce)>(next_word(text));
    if (!protocol || !nonce) return malformed();
    out.nonce = *nonce;
    if (out.version != our_version || *protocol != protocol_version)
        return fail(Code::invalid,
                    "it has {} {} (protocol {}), but this rank has {} {} (protocol {})", name,
                    out.version, *protocol, name, our_version, protocol_version)
            .advice(
                "install the same versions of tutti and of {}'s library on every host, and give "
                "them the same settings",
                name);
    while (!text.empty()) {
        auto port = parse_bytes(next_word(text));
        if (!port || out.ports.size() == max_ports) return malformed();
        out.ports.push_back(*std::move(port));
    }
    if (out.ports.empty()) return malformed();
    return out;
}

}  // namespace tutti::fabric
