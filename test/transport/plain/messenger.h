// The smallest library of plain and tagged messages: it moves them between the messengers of one
// process, and has room, receives and peers as the test says. Its ports are message ports.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "fabric/messages/messenger.h"
#include "wait/event_fd.h"

namespace tutti::test {

/// All messengers have these limits, and misbehave in these ways.
struct PlainManners {
    fabric::MessengerLimits limits{
        .port = {.eager_bytes = 20'000, .copied_bytes = 2000, .max_message_bytes = 1 << 24},
        .injected_bytes = 150,
        .two_pieces = true,
        .second = true,
        .send_queue = 64,
        .receive_queue = 32};
    MemoryRegistrar* registrar = nullptr;
    unsigned full = 0;     // one call in so many finds no room; 0: none
    bool no_room = false;  // no call does
    bool posts_nothing = false;
    bool keeps_memory = false;  // a receive goes on although it was cancelled
    int breaks = 0;             // so many sends fail after the library has accepted them
};
inline PlainManners plain_manners;

class PlainMessenger {
public:
    using Address = uint64_t;
    static constexpr int no_room = -1, no_such_peer = -2, cancelled = -3, no_receives = -4,
                         broken = -5;

    PlainMessenger() {
        const std::lock_guard lock(mutex_);
        number_ = ++last_number_;
        messengers_[number_] = this;
        own_.resize(sizeof number_);
        std::memcpy(own_.data(), &number_, sizeof number_);
    }
    PlainMessenger(const PlainMessenger&) = delete;
    ~PlainMessenger() { close(); }
    Result<> open() {
        TUTTI_ASSIGN(bell_, make_event_fd());
        return {};
    }

    const fabric::MessengerLimits& limits() const { return limits_; }
    LibraryMemory& library_memory() { return memory_; }
    const Bytes& address() const { return own_; }
    void publish(ByteWriter& address) const { address.put(number_); }
    Result<Address> parse(Rank rank, ByteReader& in) const {
        const auto number = in.get<uint64_t>();
        if (!in.at_end()) return fail_rank(Code::invalid, rank, "plain: no address");
        return number;
    }
    Result<> connect(fabric::MessagePeer& peer, Address number) {
        peer.address = number;
        if (limits_.second) peer.second = number;
        return {};
    }
    Result<> take_address(fabric::MessagePeer& peer, ByteView where) {
        if (where.size() != sizeof peer.address) return fail(Code::invalid, "plain: no address");
        std::memcpy(&peer.address, where.data(), sizeof peer.address);
        return {};
    }
    void note_reached(const fabric::MessagePeer&) { ++reached; }

    int send(fabric::StagedMessage& staged) {
        return send_to({.to = staged.peer->address,
                        .operation = &staged,
                        .pieces = {ByteView(staged.data, staged.bytes)},
                        .second = staged.second});
    }
    int inject(const fabric::StagedMessage& staged) {
        Message message{.to = staged.peer->address};
        message.copy.assign(staged.data, staged.data + staged.bytes);
        return send_to(std::move(message));
    }
    int send_in_place(fabric::PayloadOut& out) {
        return send_to({.to = out.peer->address,
                        .operation = &out,
                        .pieces = {ByteView(out.staged->data, out.staged->bytes),
                                   ByteView(out.data, out.bytes)}});
    }
    int send_payload(fabric::PayloadOut& out) {
        return send_to({.to = out.peer->address,
                        .operation = &out,
                        .pieces = {ByteView(out.data, out.bytes)},
                        .tagged = true,
                        .tag = out.tag});
    }
    int post(fabric::BounceBuffer& bounce) {
        const std::lock_guard lock(mutex_);
        if (plain_manners.posts_nothing) return no_receives;
        posted_[bounce.second].push_back(&bounce);
        news_ |= !inbox_.empty();
        return 0;
    }
    int receive_payload(fabric::PayloadIn& in, std::byte* where) {
        if (is_without_room()) return no_room;
        const std::lock_guard lock(mutex_);
        wanted_.push_back({&in, where});
        news_ |= !inbox_.empty();
        return 0;
    }
    void cancel(fabric::PayloadIn& in) {
        const std::lock_guard lock(mutex_);
        const bool kept = plain_manners.keeps_memory;
        if (!kept && std::erase_if(wanted_, [&](const Wanted& one) { return one.in == &in; }) > 0) {
            done_.push_back({&in, 0, cancelled});
            news_ = true;
        }
    }
    std::size_t read(std::span<fabric::OpCompletion> completions) {
        const std::lock_guard lock(mutex_);
        std::deque<Message> left;
        for (Message& message : std::exchange(inbox_, {}))
            if (!deliver(message)) left.push_back(std::move(message));
        inbox_ = std::move(left);
        const std::size_t count = std::min(done_.size(), completions.size());
        for (std::size_t i = 0; i < count; ++i) completions[i] = done_[i];
        done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
        news_ = !done_.empty();
        return count;
    }
    /// The peers' messages to this messenger fail, and its own never come.
    void close() {
        const std::lock_guard lock(mutex_);
        if (messengers_.erase(number_) == 0) return;
        for (const Message& message : std::exchange(inbox_, {})) complete(message, no_such_peer);
        for (const auto& [number, messenger] : messengers_)
            std::erase_if(messenger->inbox_,
                          [&](const Message& one) { return one.from == number_; });
        done_.clear();
    }
    void silence() {}

    bool is_full(int code) const { return code == no_room; }
    bool is_own(int code) const { return code == no_receives; }
    std::string failure(std::string_view what, std::size_t bytes, int code) const {
        return fmt::format("{}: {} {} bytes: code {}", name(), what, bytes, code);
    }
    std::string name() const { return "plain"; }
    int wake_fd() const { return bell_.get(); }
    bool arm() {
        const std::lock_guard lock(mutex_);
        return !news_;
    }
    void drain() { drain_event_fd(bell_.get()); }

    // These count for all messengers together.
    static inline std::atomic<int> reached = 0;
    static inline std::array<std::atomic<int>, 2> came{};  // messages, by endpoint

private:
    struct Message {
        uint64_t to = 0, from = 0;
        fabric::OpContext* operation = nullptr;  // the sender's; nullptr: it has no completion
        std::vector<ByteView> pieces = {};
        Bytes copy = {};
        bool second = false;
        bool tagged = false;
        uint64_t tag = 0;
    };
    struct Wanted {
        fabric::PayloadIn* in;
        std::byte* where;
    };
    static constexpr std::size_t most_waiting = 50;

    static bool is_without_room() {
        if (plain_manners.no_room) return true;
        return plain_manners.full > 0 && ++calls_ % plain_manners.full == 0;
    }
    int send_to(Message message) {
        if (is_without_room()) return no_room;
        const std::lock_guard lock(mutex_);
        const auto found = messengers_.find(message.to);
        if (found == messengers_.end() || !messengers_.contains(number_)) return no_such_peer;
        if (plain_manners.breaks > 0 && message.operation) {
            --plain_manners.breaks;
            done_.push_back({message.operation, 0, broken});
            news_ = true;
            return 0;
        }
        std::deque<Message>& inbox = found->second->inbox_;
        if (inbox.size() >= most_waiting && !message.copy.empty()) return no_room;
        message.from = number_;
        inbox.push_back(std::move(message));
        found->second->ring();
        return 0;
    }
    static std::size_t copy_to(std::byte* where, const Message& message) {
        std::size_t bytes = message.copy.size();
        if (bytes > 0) std::memcpy(where, message.copy.data(), bytes);
        for (const ByteView piece : message.pieces) {
            if (!piece.empty()) std::memcpy(where + bytes, piece.data(), piece.size());
            bytes += piece.size();
        }
        return bytes;
    }
    /// False: no receive is posted for it.
    bool deliver(const Message& message) {
        if (message.tagged) {
            const auto found = std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& one) {
                return one.in->tag() == message.tag;
            });
            if (found == wanted_.end()) return false;
            done_.push_back({found->in, copy_to(found->where, message), 0});
            wanted_.erase(found);
        } else {
            auto& posted = posted_[message.second];
            if (posted.empty()) return false;
            done_.push_back({posted.front(), copy_to(posted.front()->data, message), 0});
            posted.pop_front();
            ++came[message.second];
        }
        complete(message, 0);
        return true;
    }
    static void complete(const Message& message, int code) {
        const auto sender = messengers_.find(message.from);
        if (!message.operation || sender == messengers_.end()) return;
        sender->second->done_.push_back({message.operation, 0, code});
        sender->second->ring();
    }
    void ring() {
        news_ = true;
        ring_event_fd(bell_.get());
    }

    static inline std::mutex mutex_;  // guards all that messengers have for each other
    static inline std::map<uint64_t, PlainMessenger*> messengers_;
    static inline uint64_t last_number_ = 0;
    static inline std::atomic<unsigned> calls_ = 0;

    const fabric::MessengerLimits limits_ = plain_manners.limits;
    LibraryMemory memory_{plain_manners.registrar, "plain"};
    uint64_t number_ = 0;
    Bytes own_;
    UniqueFd bell_;
    bool news_ = false;  // read() has something to do
    std::deque<Message> inbox_;
    std::array<std::deque<fabric::BounceBuffer*>, 2> posted_;
    std::vector<Wanted> wanted_;
    std::deque<fabric::OpCompletion> done_;
};

}  // namespace tutti::test
