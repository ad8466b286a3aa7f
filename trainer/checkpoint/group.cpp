#include "trainer/checkpoint/group.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace tutti::trainer::checkpoint {
namespace {
constexpr int message_tag = 0x7c;
constexpr const char* doing = "checkpoint";
}  // namespace

Result<std::vector<std::string>> Group::gather(const std::string& text) const {
    if (size_ == 1) return std::vector{text};
    const auto ranks = static_cast<std::size_t>(size_);
    const std::size_t own = text.size();
    std::vector<std::size_t> lengths(is_root() ? ranks : 0);
    TRAINER_TRY(from_call(tutti_gather(comm_, &own, lengths.data(), 1, TUTTI_UINT64, 0), doing));
    std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
    TRAINER_TRY(from_call(
        tutti_gatherv(comm_, text.data(), own, all.data(), lengths.data(), nullptr, TUTTI_UINT8, 0),
        doing));
    std::vector<std::string> texts;
    std::size_t at = 0;
    for (const std::size_t length : lengths) {
        texts.push_back(all.substr(at, length));
        at += length;
    }
    return texts;
}

Result<std::string> Group::broadcast(Result<std::string> text) const {
    if (size_ == 1) return text;
    // Status, rank at fault, length of the text or of the error's message.
    std::array<int64_t, 3> said{};
    std::string words;
    if (is_root()) {
        words = text ? *text : text.error().message;
        said = {text ? TUTTI_OK : text.error().status, text ? -1 : text.error().rank,
                static_cast<int64_t>(words.size())};
    }
    TRAINER_TRY(from_call(tutti_broadcast(comm_, said.data(), 3, TUTTI_INT64, 0), doing));
    words.resize(static_cast<std::size_t>(said[2]));
    TRAINER_TRY(
        from_call(tutti_broadcast(comm_, words.data(), words.size(), TUTTI_UINT8, 0), doing));
    if (said[0] == TUTTI_OK) return words;
    return tl::unexpected<Error>(
        Error{static_cast<tutti_status>(said[0]), static_cast<int>(said[1]), -1, std::move(words)});
}

Result<> Group::broadcast(std::span<std::byte> bytes) const {
    if (size_ == 1) return {};
    return from_call(tutti_broadcast(comm_, bytes.data(), bytes.size(), TUTTI_UINT8, 0), doing);
}

Result<> Group::send(std::span<const std::byte> bytes, int rank) const {
    return from_call(tutti_send(comm_, bytes.data(), bytes.size(), TUTTI_UINT8, rank, message_tag),
                     doing);
}

Result<> Group::receive(std::span<std::byte> bytes, int rank) const {
    return from_call(
        tutti_recv(comm_, bytes.data(), bytes.size(), TUTTI_UINT8, rank, message_tag, nullptr),
        doing);
}

Result<> Group::agree(const Result<>& own) const {
    if (size_ == 1) return own;
    const std::string word =
        own ? "" : fmt::format("{} {}", static_cast<int>(own.error().status), own.error().message);
    TRAINER_ASSIGN(const std::vector<std::string> words, gather(word));
    Result<std::string> verdict = std::string();
    for (int rank = 0; rank < static_cast<int>(words.size()) && verdict; ++rank) {
        const std::string& said = words[static_cast<std::size_t>(rank)];
        if (said.empty()) continue;
        const std::size_t space = said.find(' ');
        verdict =
            tl::unexpected<Error>(Error{static_cast<tutti_status>(std::stoi(said)), rank, -1,
                                        fmt::format("rank {}: {}", rank, said.substr(space + 1))});
    }
    const auto heard = broadcast(std::move(verdict));
    if (!heard) return tl::unexpected<Error>(heard.error());
    return {};
}

}  // namespace tutti::trainer::checkpoint
