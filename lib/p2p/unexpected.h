// Messages and announcements that came before their receive: a queue of limited size for each rank.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "p2p/message_tag.h"

namespace tutti {

/// The owner of the transfers calls this.
class UnexpectedMessages {
public:
    struct UnexpectedMessage {
        Rank from = nobody;
        Tag tag;
        std::vector<std::byte> data;
    };

    /// most_bytes: the limit for each rank's whole messages.
    explicit UnexpectedMessages(std::size_t most_bytes) : most_bytes_(most_bytes) {}

    /// False: the queue is full, or there is no memory.
    bool keep(Rank from, const Tag& tag, const std::byte* data);
    /// Removes and returns the first message that the receive takes.
    std::optional<UnexpectedMessage> take(const Transfer& receive);
    /// For people: "3 messages of 96 bytes that no receive wants are here, …"; "" if there are
    /// none.
    std::string describe() const;

private:
    // Announcements and empty messages have no bytes, but take memory as well.
    std::size_t most_messages() const { return 1024 + most_bytes_ / 128; }
    struct KeptTotals {
        std::size_t bytes = 0, messages = 0;
    };

    const std::size_t most_bytes_;
    std::list<UnexpectedMessage> messages_;
    std::map<Rank, KeptTotals> kept_;
};

}  // namespace tutti
