#include "trainer/checkpoint/rank_group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <numeric>

namespace tutti::trainer::checkpoint {
namespace {
constexpr int message_tag = 0x7c;
constexpr const char* doing = "checkpoint";

// The call has no deadline: another rank may spend any time on its disk or in the program's copy
// function. The loss of a rank ends the wait.
template <typename Start>
Result<> wait_for(Start&& start) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = 0;
    opts.timeout_ms = 0;
    tutti_request* request = nullptr;
    TRAINER_TRY(from_call(start(&opts, &request), doing));
    return from_call(tutti_wait(&request, -1), doing);
}

}  // namespace

Result<std::vector<std::string>> RankGroup::gather(const std::string& text) const {
    if (size_ == 1) return std::vector{text};
    const auto ranks = static_cast<std::size_t>(size_);
    const std::size_t own = text.size();
    std::vector<std::size_t> lengths(is_root() ? ranks : 0);
    TRAINER_TRY(wait_for([&](auto* opts, auto* request) {
        return tutti_igather(comm_, &own, lengths.data(), 1, TUTTI_UINT64, 0, opts, request);
    }));
    std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
    TRAINER_TRY(wait_for([&](auto* opts, auto* request) {
        return tutti_igatherv(comm_, text.data(), own, all.data(), lengths.data(), nullptr,
                              TUTTI_UINT8, 0, opts, request);
    }));
    std::vector<std::string> texts;
    std::size_t at = 0;
    for (const std::size_t length : lengths) {
        texts.push_back(all.substr(at, length));
        at += length;
    }
    return texts;
}

Result<std::vector<std::string>> RankGroup::begin_and_gather(const char* name,
                                                             const std::string& text) const {
    TRAINER_TRY(begin_named(comm_, name));
    return gather(text);
}

Result<std::string> RankGroup::broadcast(Result<std::string> text) const {
    if (size_ == 1) return text;
    // Status, rank at fault, length of the text or of the error's text.
    std::array<int64_t, 3> packed{};
    std::string words;
    if (is_root()) {
        words = text ? *text : error_text(text.error());
        packed = {text ? TUTTI_OK : text.error().status, text ? -1 : text.error().rank,
                  static_cast<int64_t>(words.size())};
    }
    TRAINER_TRY(broadcast(std::as_writable_bytes(std::span(packed))));
    words.resize(static_cast<std::size_t>(packed[2]));
    TRAINER_TRY(broadcast(std::as_writable_bytes(std::span(words))));
    if (packed[0] == TUTTI_OK) return words;
    return tl::unexpected<Error>(Error{static_cast<tutti_status>(packed[0]),
                                       static_cast<int>(packed[1]), -1, std::move(words)});
}

Result<> RankGroup::broadcast(std::span<std::byte> bytes) const {
    if (size_ == 1) return {};
    return wait_for([&](auto* opts, auto* request) {
        return tutti_ibroadcast(comm_, bytes.data(), bytes.size(), TUTTI_UINT8, 0, opts, request);
    });
}

Result<> RankGroup::send(std::span<const std::byte> bytes, int rank) const {
    return wait_for([&](auto* opts, auto* request) {
        return tutti_isend(comm_, bytes.data(), bytes.size(), TUTTI_UINT8, rank, message_tag, opts,
                           request);
    });
}

Result<> RankGroup::receive(std::span<std::byte> bytes, int rank) const {
    return wait_for([&](auto* opts, auto* request) {
        return tutti_irecv(comm_, bytes.data(), bytes.size(), TUTTI_UINT8, rank, message_tag,
                           nullptr, opts, request);
    });
}

Result<> RankGroup::agree(const Result<>& own) const {
    if (size_ == 1) return own;
    const std::string word =
        own ? ""
            : fmt::format("{} {}", static_cast<int>(own.error().status), error_text(own.error()));
    TRAINER_ASSIGN(const std::vector<std::string> words, gather(word));
    Result<std::string> verdict = std::string();
    for (int rank = 0; rank < static_cast<int>(words.size()) && verdict; ++rank) {
        const std::string& packed = words[static_cast<std::size_t>(rank)];
        if (packed.empty()) continue;
        const std::size_t space = packed.find(' ');
        int status = TUTTI_ERR_SYSTEM;
        (void)std::from_chars(packed.data(), packed.data() + std::min(space, packed.size()),
                              status);
        verdict = tl::unexpected<Error>(
            Error{static_cast<tutti_status>(status), rank, -1,
                  fmt::format("rank {}: {}", rank, packed.substr(space + 1))});
    }
    const auto received = broadcast(std::move(verdict));
    if (!received) return tl::unexpected<Error>(received.error());
    return {};
}

}  // namespace tutti::trainer::checkpoint
