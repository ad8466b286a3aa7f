#include "job/client_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "wait/pace.h"

namespace tutti {
namespace {

constexpr std::size_t most_byes = 256;

}  // namespace

// The thread polls, as GCC 12's thread sanitizer does not know how a timed mutex is locked.
ClientTable::Lock ClientTable::hold(Deadline deadline) {
    Lock lock(mutex_, std::defer_lock);
    if (deadline.never()) lock.lock();
    Pace pace(deadline, {.sleep_us = 100});
    while (!lock.owns_lock() && !lock.try_lock() && pace.pause()) {
    }
    return lock;
}

EndpointClient* ClientTable::find(uint32_t comm) const {
    const auto found = clients_.find(comm);
    return found == clients_.end() ? nullptr : found->second;
}

bool ClientTable::claim(uint32_t comm) {
    const Lock lock = hold();
    if (claimed_.contains(comm)) return false;
    claimed_.insert(comm);
    return true;
}

bool ClientTable::add(uint32_t comm, EndpointClient* client) {
    const Lock lock = hold();
    clients_[comm] = client;
    bool given = false;
    // A channel for another communicator is kept again.
    for (auto& [id, receiver] : early_channels_.take_all())
        given |= opened(id, std::move(receiver)) == Taken::given;
    for (auto& [from, message] : early_messages_.take(comm)) client->handle_message(from, message);
    return given;
}

bool ClientTable::remove(uint32_t comm, LastWords last_words) {
    const Lock lock = hold();
    clients_.erase(comm);
    removed_.insert(comm);
    closed_agreements_.keep(comm, std::move(last_words.agreements));
    if (last_words.bye) byes_.push_back(*std::move(last_words.bye));
    if (byes_.size() > most_byes) byes_.pop_front();
    return clients_.empty();
}

bool ClientTable::empty() {
    const Lock lock = hold();
    return clients_.empty();
}

ClientTable::Taken ClientTable::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    const Lock lock = hold();
    if (EndpointClient* const client = find(id.comm)) {
        client->opened(id, std::move(receiver));
        return Taken::given;
    }
    const bool fits = removed_.contains(id.comm) || early_channels_.keep(id, std::move(receiver));
    return fits ? Taken::kept_or_dropped : Taken::too_many;
}

bool ClientTable::still_wanted(const ChannelId& id) {
    const Lock lock = hold();
    EndpointClient* const client = find(id.comm);
    return client && client->still_wanted(id);
}

void ClientTable::connected(const ChannelId& id, Result<Opened> opened) {
    const Lock lock = hold();
    if (EndpointClient* const client = find(id.comm)) client->connected(id, std::move(opened));
}

std::vector<ControlMessage> ClientTable::handle_message(Rank from, const ControlMessage& message,
                                                        bool keep) {
    const Lock lock = hold();
    if (EndpointClient* const client = find(message.comm)) {
        client->handle_message(from, message);
        return {};
    }
    if (removed_.contains(message.comm)) return answer_for_removed(message);
    if (keep) early_messages_.keep(from, message);
    return {};
}

// A rank asks who is late: the goodbye did not reach it if the rank died that had to pass it on. As
// that rank may be no member of the communicator, no member has sent the goodbye again.
std::vector<ControlMessage> ClientTable::answer_for_removed(const ControlMessage& message) const {
    using Kind = ControlMessage::Kind;
    std::vector<ControlMessage> answers;
    if (message.kind == Kind::agree) {
        for (Bytes& body : closed_agreements_.answers(message.comm, message.body)) {
            answers.push_back(message);
            answers.back().body = std::move(body);
        }
    } else if (message.kind == Kind::stall || message.kind == Kind::query) {
        std::copy_if(byes_.begin(), byes_.end(), std::back_inserter(answers),
                     [&](const ControlMessage& bye) { return bye.comm == message.comm; });
    }
    return answers;
}

void ClientTable::peer_lost(Rank peer, const std::string& cause, Rank accuser) {
    const Lock lock = hold();
    for (auto& [comm, client] : clients_) client->peer_lost(peer, cause, accuser);
}

void ClientTable::unreachable(Rank peer) {
    const Lock lock = hold();
    for (auto& [comm, client] : clients_) client->unreachable(peer);
}

bool ClientTable::drive(bool& moved) {
    const Lock lock = hold();
    bool busy = false;
    for (auto& [comm, client] : clients_) busy |= client->drive(moved);
    return busy;
}

bool ClientTable::arm(bool on) {
    const Lock lock = hold();
    bool all = true;
    for (auto& [comm, client] : clients_) all &= client->arm(on);
    return all;
}

}  // namespace tutti
