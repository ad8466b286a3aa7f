// The channels of a symbolic run, and the messages in flight.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "proof/symbolic.h"

namespace tutti {

/// FIFO queues by number. If every rank sends to every other, there are n² of them: a queue takes
/// eight bytes, and all messages are in one pool. No rank sends to number 0, which stays empty.
class SymbolicChannels {
public:
    static constexpr uint32_t silent = 0;

    class SymbolicMessage {
    public:
        uint32_t depth = 0;           // of the chain of messages that this one ends
        uint32_t step = 0, tile = 0;  // the step and tile that sent it
        std::span<symbolic::Value> values() {
            return count_ == 1 ? std::span(&one_, 1) : std::span(many_.get(), count_);
        }

    private:
        friend class SymbolicChannels;
        uint32_t next_ = 0;  // the next message in its queue; after the last one the first
        uint32_t count_ = 0;
        symbolic::Value one_;
        std::unique_ptr<symbolic::Value[]> many_;
    };

    /// Makes `channels` empty channels.
    void reset(uint32_t channels) {
        channels_.assign(channels, {});
        messages_.clear();
        free_.clear();
    }

    uint32_t waiting(uint32_t channel) const { return channels_[channel].count; }
    SymbolicMessage& front(uint32_t channel) {
        return messages_[messages_[channels_[channel].last].next_];
    }

    /// Appends a message of `count` values, for the caller to fill. Other messages keep their
    /// address.
    SymbolicMessage& push(uint32_t channel, uint32_t count) {
        if (free_.empty()) {
            free_.push_back(static_cast<uint32_t>(messages_.size()));
            messages_.emplace_back();
        }
        const uint32_t number = free_.back();
        free_.pop_back();
        SymbolicMessage& message = messages_[number];
        message.count_ = count;
        if (count != 1) message.many_ = std::make_unique<symbolic::Value[]>(count);
        SymbolicChannel& queue = channels_[channel];
        message.next_ = queue.count == 0 ? number : messages_[queue.last].next_;
        if (queue.count > 0) messages_[queue.last].next_ = number;
        queue.last = number;
        ++queue.count;
        return message;
    }
    void pop(uint32_t channel) {
        SymbolicChannel& queue = channels_[channel];
        SymbolicMessage& last = messages_[queue.last];
        const uint32_t number = last.next_;
        last.next_ = messages_[number].next_;
        messages_[number].many_.reset();
        free_.push_back(number);
        --queue.count;
    }

private:
    struct SymbolicChannel {
        uint32_t last = 0;  // the last message, if there are any
        uint32_t count = 0;
    };
    std::vector<SymbolicChannel> channels_;
    std::deque<SymbolicMessage> messages_;  // grows without moving its elements
    std::vector<uint32_t> free_;
};

}  // namespace tutti
