#include "p2p/unexpected.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace tutti {

bool UnexpectedMessages::keep(Rank from, const Tag& tag, const std::byte* data) {
    const std::size_t bytes = kind_of(tag) == MessageKind::whole ? tag.count : 0;
    KeptTotals& kept = kept_[from];
    if (kept.bytes + bytes > most_bytes_ || kept.messages >= most_messages()) return false;
    try {
        messages_.push_back({from, tag, std::vector<std::byte>(data, data + bytes)});
    } catch (const std::bad_alloc&) {
        return false;
    }
    kept.bytes += bytes;
    ++kept.messages;
    return true;
}

std::optional<UnexpectedMessages::UnexpectedMessage> UnexpectedMessages::take(
    const Transfer& receive) {
    const auto found =
        std::find_if(messages_.begin(), messages_.end(),
                     [&](const UnexpectedMessage& m) { return wants(receive, m.from, m.tag); });
    if (found == messages_.end()) return std::nullopt;
    std::optional<UnexpectedMessage> message = std::move(*found);
    messages_.erase(found);
    KeptTotals& kept = kept_[message->from];
    kept.bytes -= message->data.size();
    --kept.messages;
    return message;
}

std::string UnexpectedMessages::describe() const {
    if (messages_.empty()) return "";
    const std::size_t bytes =
        std::accumulate(kept_.begin(), kept_.end(), std::size_t{0},
                        [](std::size_t sum, auto& one) { return sum + one.second.bytes; });
    return fmt::format(
        "{} messages of {} bytes that no receive wants are here, the first from rank {} with tag "
        "{}",
        messages_.size(), bytes, messages_.front().from, messages_.front().tag.root);
}

}  // namespace tutti
