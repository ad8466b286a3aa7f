#include "rendezvous/store_table.h"

#include <fmt/format.h>

#include <cstring>

#include "base/clock.h"
#include "base/log.h"

namespace tutti {

using store_protocol::framed_reply;
using store_protocol::Status;
using store_protocol::StoreOp;
using store_protocol::StoreRequest;

namespace {

constexpr std::size_t store_limit_bytes = std::size_t{1} << 30;

}  // namespace

std::optional<std::size_t> StoreTable::take(Client& client, ByteView bytes) {
    ByteReader reader(bytes);
    const auto length = reader.get<uint32_t>();
    if (!reader.ok()) return 0;
    if (length > store_protocol::max_frame_bytes) {
        log::debug("store: a client announces a request of {} bytes", length);
        return std::nullopt;
    }
    if (bytes.size() - sizeof length < length) return 0;
    auto request = store_protocol::decode_request(bytes.subspan(sizeof length, length));
    if (!request) {
        log::debug("store: a client sent a malformed request");
        return std::nullopt;
    }
    answer(client, *std::move(request));
    return sizeof length + length;
}

void StoreTable::drop(Client& client) {
    if (client.waits()) {
        const auto waiting = waiting_.find(*client.waits_for_);
        std::erase(waiting->second, &client);
        if (waiting->second.empty()) waiting_.erase(waiting);
    }
    if (client.will_) execute(*client.will_);
}

// Ignores the client's later requests: it may have been killed in the middle of one.
void StoreTable::execute(const StoreRequest& will) {
    if (values_.contains(will.key)) return;
    const Bytes time = ByteWriter().put(wall_clock_s()).take();
    if (!keep(will.key, std::string(as_text(time)) + will.value))
        log::warn(fail(Code::no_memory,
                       "store: full, so the ranks that wait do not learn that a rank has ended "
                       "while it was joining")
                      .advice("restart the job, and keep fewer or smaller values of the program's "
                              "own in the store"));
}

void StoreTable::answer(Client& client, StoreRequest request) {
    const auto found = values_.find(request.key);
    const bool known = found != values_.end();
    switch (request.op) {
        case StoreOp::set:
            if (put(client, request)) client.send_(framed_reply(Status::ok, ""));
            return;
        case StoreOp::claim:
            if (known) return client.send_(framed_reply(Status::taken, found->second));
            if (put(client, request)) client.send_(framed_reply(Status::ok, ""));
            return;
        case StoreOp::get:
            if (known) return client.send_(framed_reply(Status::ok, found->second));
            waiting_[request.key].push_back(&client);
            client.waits_for_ = std::move(request.key);
            return;
        case StoreOp::try_get:
            return client.send_(known ? framed_reply(Status::ok, found->second)
                                      : framed_reply(Status::missing, ""));
        case StoreOp::remove:
            remove(request.key);
            return client.send_(framed_reply(Status::ok, ""));
        case StoreOp::add:
            return count(client, request);
        case StoreOp::will:
            client.will_.reset();
            if (!request.key.empty()) client.will_ = std::move(request);
            return client.send_(framed_reply(Status::ok, ""));
    }
}

// Counters are 8-byte values like any other, so get and remove work on them.
void StoreTable::count(Client& client, const StoreRequest& request) {
    uint64_t sum = 0, amount = 0;
    const auto found = values_.find(request.key);
    const bool known = found != values_.end();
    if (request.value.size() != sizeof amount || (known && found->second.size() != sizeof sum))
        return client.send_(framed_reply(Status::refused, "add works on 8-byte counters only"));
    std::memcpy(&amount, request.value.data(), sizeof amount);
    if (known) std::memcpy(&sum, found->second.data(), sizeof sum);
    sum += amount;
    const std::string value(reinterpret_cast<const char*>(&sum), sizeof sum);
    if (put(client, {request.op, request.key, value}))
        client.send_(framed_reply(Status::ok, value));
}

bool StoreTable::put(Client& client, const StoreRequest& request) {
    if (keep(request.key, request.value)) return true;
    client.send_(framed_reply(Status::refused,
                              fmt::format("the store holds {} bytes, its limit", stored_bytes_)));
    return false;
}

// False: there is no room.
bool StoreTable::keep(const std::string& key, std::string value) {
    const auto found = values_.find(key);
    const std::size_t before =
        found == values_.end() ? 0 : found->first.size() + found->second.size();
    const std::size_t after = stored_bytes_ - before + key.size() + value.size();
    if (after > store_limit_bytes) return false;
    stored_bytes_ = after;
    values_.insert_or_assign(key, std::move(value));
    publish(key);
    return true;
}

void StoreTable::remove(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return;
    stored_bytes_ -= found->first.size() + found->second.size();
    values_.erase(found);
}

void StoreTable::publish(const std::string& key) {
    const auto waiting = waiting_.extract(key);
    if (waiting.empty()) return;
    for (Client* client : waiting.mapped()) {
        client->send_(framed_reply(Status::ok, values_.at(key)));
        client->waits_for_.reset();
    }
}

}  // namespace tutti
