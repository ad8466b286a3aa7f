#include "transport/loopback/port.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::test {

using fabric::Progress;
using Lock = std::lock_guard<std::mutex>;

// ---- coming and going ------------------------------------------------------------------------

LoopbackPort::LoopbackPort(fabric::PortEvents& events) : events_(events) {
    limits_.eager_bytes = limits_.copied_bytes = 4096;
    const Lock lock(mutex_);
    number_ = ++last_number_;
    ports_[number_] = this;
    address_ = ByteWriter().put(::getpid()).put(number_).take();
}

// All others hear of it: one may have connected to this port without an answer.
LoopbackPort::~LoopbackPort() {
    const Lock lock(mutex_);
    ports_.erase(number_);
    for (const auto& [number, port] : ports_) hang_up(number);
    for (const Pending& send : pending_) send.message->data = nullptr;
}

Result<> LoopbackPort::connect(Rank peer, ByteView address) {
    ByteReader in(address);
    const auto process = in.get<pid_t>();
    const auto number = in.get<uint64_t>();
    if (!in.at_end()) return fail_rank(Code::invalid, peer, "loopback: its address is malformed");
    const Lock lock(mutex_);
    if (process != ::getpid() || !ports_.contains(number))
        return fail_rank(Code::unsupported, peer, "loopback: no port {} in this process", number);
    peers_[peer] = number;
    return {};
}

// The peer's port may be gone, or may have hung up first: then only the sends are left to end.
void LoopbackPort::disconnect(Rank peer) {
    std::vector<void*> ended;
    {
        const Lock lock(mutex_);
        if (const auto found = peers_.find(peer); found != peers_.end()) {
            const uint64_t number = found->second;
            hang_up(number);
            std::erase_if(inbox_, [&](const auto& message) { return message->sender == number; });
            peers_.erase(found);
        }
        std::erase_if(pending_, [&](const Pending& send) {
            if (send.to != peer) return false;
            send.message->data = nullptr;
            ended.push_back(send.context);
            return true;
        });
    }
    for (void* context : ended) events_.sent(context, Code::peer_lost);
}

/// Behind all messages to that port. The caller has the mutex.
void LoopbackPort::hang_up(uint64_t number) {
    const auto to = ports_.find(number);
    if (to == ports_.end()) return;
    auto last = std::make_shared<Message>();
    last->sender = number_;
    last->hangs_up = true;
    to->second->inbox_.push_back(std::move(last));
}

// ---- sending ---------------------------------------------------------------------------------

// Never busy: the queues have no end, and the engine's credits bound how much lies there.
Progress LoopbackPort::send(Rank peer, const std::byte* header, const std::byte* data,
                            std::size_t bytes, void* context) {
    return post(peer, header, data, bytes, context, bytes <= limits_.eager_bytes);
}

Progress LoopbackPort::post(Rank peer, const std::byte* header, const std::byte* data,
                            std::size_t bytes, void* context, bool copies) {
    auto message = std::make_shared<Message>();
    message->sender = number_;
    std::memcpy(message->header.data(), header, fabric::header_bytes);
    message->bytes = bytes;
    if (copies)
        message->copy.assign(data, data + bytes);
    else
        message->data = data;
    const Lock lock(mutex_);
    const auto found = peers_.find(peer);
    const auto to = found == peers_.end() ? ports_.end() : ports_.find(found->second);
    // The peer's port has hung up: lost() has said so, or the next progress() does.
    if (to == ports_.end()) return Progress::failed;
    to->second->inbox_.push_back(message);
    if (copies) return Progress::done;
    pending_.push_back({peer, context, std::move(message)});
    return Progress::pending;
}

// ---- receiving -------------------------------------------------------------------------------

bool LoopbackPort::progress() {
    std::deque<MessagePtr> arrived;
    std::vector<void*> sent;
    {
        const Lock lock(mutex_);
        arrived.swap(inbox_);
        std::erase_if(pending_, [&](const Pending& send) {
            if (send.message->data) return false;
            sent.push_back(send.context);
            return true;
        });
    }
    for (void* context : sent) events_.sent(context, Code::ok);
    for (const MessagePtr& message : arrived) deliver(message);
    return !sent.empty() || !arrived.empty();
}

void LoopbackPort::deliver(const MessagePtr& message) {
    if (message->hangs_up) {
        const auto is_sender = [&](const auto& peer) { return peer.second == message->sender; };
        const auto found = std::find_if(peers_.begin(), peers_.end(), is_sender);
        if (found == peers_.end()) return;
        const Rank lost = found->first;
        peers_.erase(found);
        return events_.lost(lost, "loopback: the peer's port was closed", fabric::Culprit::peer);
    }
    void* const hold = message.get();
    held_[hold] = message;
    const bool kept =
        events_.arrived({.header = message->header.data(),
                         .data = message->copy.empty() ? nullptr : message->copy.data(),
                         .bytes = message->bytes,
                         .hold = hold});
    if (!kept) release(hold);
}

// Under the mutex, since its sender may take the payload back at any time.
Progress LoopbackPort::fetch(void* hold, std::byte* where, std::size_t bytes, void* context) {
    static_cast<void>(context);  // done at once: there is no event
    const Lock lock(mutex_);
    const std::byte* const data = std::exchange(held_.at(hold)->data, nullptr);
    if (!data) return Progress::failed;  // its sender hangs up, or has: lost() says so
    std::memcpy(where, data, bytes);
    return Progress::done;
}

void LoopbackPort::release(void* hold) {
    const Lock lock(mutex_);
    held_.at(hold)->data = nullptr;
    held_.erase(hold);
}

}  // namespace tutti::test
