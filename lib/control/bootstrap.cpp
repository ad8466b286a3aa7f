#include "control/bootstrap.h"

#include <algorithm>

#include "base/hash.h"
#include "base/told_error.h"
#include "control/tree.h"

namespace tutti {
namespace {

constexpr std::size_t max_machines = 256;
constexpr uint32_t max_text_bytes = 4096;
constexpr uint32_t max_settings = 64;
constexpr uint32_t max_core_words = 16;
constexpr std::string_view same_version = "install the same version of tutti on every host";

Error malformed(Rank from) {
    return fail_rank(Code::system, from, "rank {} sent a malformed message while joining", from)
        .advice(same_version)
        .value();
}

Error size_error(Rank from, Rank size, const Bootstrap::Self& self) {
    return fail_rank(Code::invalid, from, "rank {} was started with size {}, rank {} with size {}",
                     from, size, self.rank, self.size)
        .advice("set TUTTI_SIZE to the same value on every rank")
        .value();
}

Bytes encode_failure(auto kind, const Error& error) {
    const std::string text = error_text(error).substr(0, max_text_bytes);
    return ByteWriter().put(kind).put(error.code).put(error.rank).put_text(text).take();
}

bool complete(const std::map<Rank, bool>& reported) {
    return std::all_of(reported.begin(), reported.end(), [](auto& entry) { return entry.second; });
}

LinkAttributes worst_of(const LinkAttributes& a, const LinkAttributes& b) {
    return {.max_message_bytes = std::min(a.max_message_bytes, b.max_message_bytes),
            .latency_us = std::max(a.latency_us, b.latency_us),
            .bandwidth_gbs = std::min(a.bandwidth_gbs, b.bandwidth_gbs),
            .sockets = a.sockets || b.sockets,
            .sockets_within = a.sockets_within || b.sockets_within,
            .lacking = a.lacking || b.lacking};
}

}  // namespace

Bootstrap::Bootstrap(Self self)
    : self_(std::move(self)),
      children_(tree_children(self_.rank, self_.size)),
      records_(self_.rank, self_.size, std::move(self_.record)),
      worst_(self_.transports) {
    for (Rank child : children_) joined_[child] = linked_[child] = false;
    linked_[self_.rank] = false;
    machines_[hash_of(self_.machine_id)] = {1, self_.cores};
    advance();
}

std::vector<Rank> Bootstrap::missing() const {
    std::vector<Rank> ranks;
    for (auto [rank, joined] : joined_)
        if (!joined) ranks.push_back(rank);
    return ranks;
}

// All ranks have joined: tells the children, and stores this machine's counts, which the service
// thread reads in every pass.
void Bootstrap::begin_link() {
    for (Rank child : children_) send_state(Kind::ready, child);
    const auto found = machines_.find(hash_of(self_.machine_id));
    if (counted_ && found != machines_.end()) {
        machine_ranks_ = found->second.ranks;
        machine_cores_ = count_cores(found->second.cores);
    }
    state_ = State::link;
}

double Bootstrap::crowding() const {
    double fullest = 0;
    for (const auto& [name, machine] : machines_)
        if (const uint32_t cores = count_cores(machine.cores); counted_ && cores > 0)
            fullest = std::max(fullest, static_cast<double>(machine.ranks) / cores);
    return fullest;
}

void Bootstrap::send_down(const Bytes& message) {
    for (Rank child : children_) send(child, message);
}

// A join or ready, after the records that a partner lacks.
void Bootstrap::send_state(Kind kind, Rank to) {
    if (record_partners_.count(to) > 0)
        for (Bytes& chunk : records_.encode_for(to, static_cast<uint8_t>(Kind::records)))
            send(to, std::move(chunk));
    send(to, encode_state(kind));
}

Bytes Bootstrap::encode_state(Kind kind) const {
    ByteWriter out;
    out.put(kind).put(self_.size).put(one_host_).put(counted_);
    out.put_text(self_.host_id);
    out.put(static_cast<uint32_t>(machines_.size()));
    for (const auto& [name, machine] : machines_) {
        out.put(name).put(machine.ranks).put(static_cast<uint32_t>(machine.cores.size()));
        for (const uint64_t word : machine.cores) out.put(word);
    }
    if (kind == Kind::join) {
        const auto is_named = [&](const auto& setting) {
            return knows_heartbeats_ || setting.first != heartbeat_key;
        };
        out.put(
            static_cast<uint32_t>(std::count_if(self_.agree.begin(), self_.agree.end(), is_named)));
        for (const auto& setting : self_.agree)
            if (is_named(setting)) out.put_text(setting.first).put_text(setting.second);
    }
    encode_transports(out);
    return out.take();
}

bool Bootstrap::decode_machines(ByteReader& in, bool add) {
    const auto count = in.get<uint32_t>();
    if (count > max_machines) return false;
    if (!add) machines_.clear();
    for (uint32_t i = 0; i < count && in.ok(); ++i) {
        Machine& machine = machines_[in.get<uint64_t>()];
        machine.ranks += in.get<uint32_t>();
        const auto words = in.get<uint32_t>();
        if (words > max_core_words) return false;
        CoreSet cores(words);
        for (uint64_t& word : cores) word = in.get<uint64_t>();
        add_cores(machine.cores, cores);
    }
    if (machines_.size() > max_machines) {
        machines_.clear();
        counted_ = false;
    }
    return in.ok();
}

void Bootstrap::encode_transports(ByteWriter& out) const {
    out.put(static_cast<uint32_t>(worst_.size()));
    for (const LinkAttributes& one : worst_)
        out.put(uint64_t{one.max_message_bytes})
            .put(one.latency_us)
            .put(one.bandwidth_gbs)
            .put(one.sockets)
            .put(one.sockets_within)
            .put(one.lacking);
}

// Keeps the worse of both ranks' attributes: no rank may be asked for more than it reported.
bool Bootstrap::decode_transports(ByteReader& in) {
    if (in.get<uint32_t>() != worst_.size()) return false;
    for (LinkAttributes& worst : worst_) {
        LinkAttributes other;
        other.max_message_bytes = in.get<uint64_t>();
        other.latency_us = in.get<double>();
        other.bandwidth_gbs = in.get<double>();
        other.sockets = in.get<uint8_t>() != 0;
        other.sockets_within = in.get<uint8_t>() != 0;
        other.lacking = in.get<uint8_t>() != 0;
        if (other.max_message_bytes == 0 || !(other.latency_us >= 0 && other.bandwidth_gbs >= 0))
            return false;
        worst = worst_of(worst, other);
    }
    return in.ok();
}

void Bootstrap::handle_records(Rank from, ByteReader& in) {
    const auto size = in.get<Rank>();
    if (in.ok() && size != self_.size) return fail_with(size_error(from, size, self_));
    if (const auto added = records_.add(from, in); !added) return fail_with(added.error());
    record_partners_.insert(from);
}

void Bootstrap::handle_join(Rank from, ByteReader& in) {
    const auto size = in.get<Rank>();
    if (size != self_.size) return fail_with(size_error(from, size, self_));
    one_host_ &= in.get<uint8_t>() != 0;
    counted_ &= in.get<uint8_t>() != 0;
    one_host_ &= in.get_text(max_text_bytes) == self_.host_id;
    if (!decode_machines(in, true)) return fail_with(malformed(from));
    bool names_heartbeat = false;
    const auto settings = in.get<uint32_t>();
    for (uint32_t i = 0; i < std::min(settings, max_settings) && in.ok(); ++i) {
        const std::string key = in.get_text(max_text_bytes);
        const std::string value = in.get_text(max_text_bytes);
        names_heartbeat |= key == heartbeat_key;
        for (const auto& [own_key, own_value] : self_.agree)
            if (key == own_key && value != own_value)
                return fail_with(fail_rank(Code::invalid, from,
                                           "{} is '{}' on rank {} but '{}' on rank {}", key, value,
                                           from, own_value, self_.rank)
                                     .advice("give {} the same value on every rank", key)
                                     .value());
    }
    if (!decode_transports(in) || !in.at_end()) return fail_with(malformed(from));
    knows_heartbeats_ &= names_heartbeat;
    joined_[from] = true;
}

void Bootstrap::handle_ready(ByteReader& in) {
    in.get<Rank>();
    one_host_ = in.get<uint8_t>() != 0;
    counted_ = in.get<uint8_t>() != 0;
    in.get_text(max_text_bytes);
    if (!decode_machines(in, false) || !decode_transports(in) || !in.at_end())
        return fail_with(fail(Code::system, "received a malformed message from the control tree")
                             .advice(same_version)
                             .value());
    begin_link();
}

void Bootstrap::receive(Rank from, ByteView message) {
    if (state_ == State::failed) return;
    ByteReader in(message);
    const auto kind = in.get_enum(Kind::join, Kind::records);
    const bool from_parent = from == tree_parent(self_.rank);
    const bool from_child = std::count(children_.begin(), children_.end(), from) > 0;
    const bool subtree_joined = complete(joined_);
    if (kind == Kind::failed) {
        const auto code = in.get<Code>();
        const auto rank = in.get<Rank>();
        const Error told = told_error(code, rank, self_.size, in.get_text(max_text_bytes));
        if (in.at_end()) return spread(told, from);
        return fail_with(malformed(from));
    }
    if (kind == Kind::records && records_.exchanged() && state_ == State::gathering &&
        (from_parent ? record_partners_.count(from) > 0 : from_child && !joined_[from]))
        return handle_records(from, in);
    if (kind == Kind::join && from_child && !joined_[from]) {
        handle_join(from, in);
    } else if (kind == Kind::ready && from_parent && subtree_joined && state_ == State::gathering) {
        handle_ready(in);
    } else if (kind == Kind::linked && from_child && !linked_[from] &&
               (state_ == State::link || state_ == State::linking)) {
        all_linked_ &= in.get<uint8_t>() != 0;
        linked_[from] = true;
    } else if (kind == Kind::go && from_parent && state_ == State::linking) {
        all_linked_ = in.get<uint8_t>() != 0;
        state_ = State::done;
        send_down(ByteWriter().put(Kind::go).put(all_linked_).take());
    } else {
        return fail_with(
            fail_rank(Code::system, from, "rank {} sent an unexpected message while joining", from)
                .advice(same_version)
                .value());
    }
    advance();
}

// Passes on the state that has become complete.
void Bootstrap::advance() {
    const Rank parent = tree_parent(self_.rank);
    if (state_ == State::gathering && complete(joined_)) {
        if (parent != nobody)
            join_due_ = true;
        else
            begin_link();
    }
    if (state_ == State::linking && complete(linked_)) {
        if (parent != nobody) {
            send(parent, ByteWriter().put(Kind::linked).put(all_linked_).take());
        } else {
            state_ = State::done;
            send_down(ByteWriter().put(Kind::go).put(all_linked_).take());
        }
    }
}

void Bootstrap::found_latency(std::size_t transport, double latency_us) {
    worst_[transport].latency_us = std::max(worst_[transport].latency_us, latency_us);
}

void Bootstrap::linked(bool ok) {
    if (state_ != State::link) return;
    all_linked_ &= ok;
    linked_[self_.rank] = true;
    state_ = State::linking;
    advance();
}

std::vector<Bootstrap::OutgoingMessage> Bootstrap::take_outgoing(Parent parent) {
    const Rank parent_rank = tree_parent(self_.rank);
    const bool connected = parent != Parent::not_connected;
    // Encode this rank's state only now: while it connects to the parent, it may learn attributes
    // that it reports (found_latency).
    if (connected && std::exchange(join_due_, false) && state_ != State::failed) {
        if (parent == Parent::exchanges_records) record_partners_.insert(parent_rank);
        send_state(Kind::join, parent_rank);
    }
    const auto waits = std::stable_partition(
        outgoing_.begin(), outgoing_.end(),
        [&](const OutgoingMessage& out) { return connected || out.to != parent_rank; });
    std::vector<OutgoingMessage> taken(std::make_move_iterator(outgoing_.begin()),
                                       std::make_move_iterator(waits));
    outgoing_.erase(outgoing_.begin(), waits);
    return taken;
}

void Bootstrap::fail_with(const Error& error) {
    if (state_ != State::failed) spread(error, nobody);
}

void Bootstrap::child_connected(Rank child) {
    if (state_ == State::failed) send(child, encode_failure(Kind::failed, error_));
}

void Bootstrap::spread(const Error& error, Rank except) {
    error_ = error;
    state_ = State::failed;
    const Bytes message = encode_failure(Kind::failed, error_);
    if (const Rank parent = tree_parent(self_.rank); parent != nobody && parent != except)
        send(parent, message);
    for (Rank child : children_)
        if (child != except) send(child, message);
}

}  // namespace tutti
