// The protocol by which a job's ranks assemble: a state machine without I/O, messages in, messages
// out. Assembly (job/) drives it over the control tree's sockets; tests carry the messages
// themselves.
//
//   up     records  before join, to a parent that exchanges records: those of the subtree's ranks
//   up     join     the subtree is complete: its settings, its machines, and the worst attributes
//                   of its transports
//   down   records  before ready, to a child that has sent records: those of all other ranks
//   down   ready    all ranks have joined: the ranks on each machine, the worst attributes of all
//   up     linked   the subtree has done the local work in between (shared memory): true if it
//                   succeeded
//   down   go       every rank starts: true if the local work succeeded on all ranks
//   both   failed   why the job cannot start; goes to every rank that can still be reached
//
// Each rank sends and gets O(children) messages, and a few more if the records are long (see
// RankRecords); the slowest path is 4 × the tree's depth. A rank of version 0.1.0 knows no records:
// it gets none, and the ranks behind it miss those of the other side.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/link_attributes.h"
#include "base/result.h"
#include "base/types.h"
#include "control/rank_records.h"
#include "os/cores.h"

namespace tutti {

class Bootstrap {
public:
    struct Self {
        Rank rank = 0;
        Rank size = 1;
        std::string host_id;     // ranks with the same id share a host
        std::string machine_id;  // ranks with the same id share its cores
        CoreSet cores;           // the machine's cores that this rank may use
        /// Settings that must be the same everywhere, by name.
        std::vector<std::pair<std::string, std::string>> agree;
        std::vector<LinkAttributes> transports;  // the same number on every rank
        std::string record;  // for the other ranks; empty: this rank exchanges none
    };
    /// A setting that versions before heartbeats lack. A rank names it to its parent only if every
    /// rank below it does, too.
    static constexpr std::string_view heartbeat_key = "heartbeat_ms";
    /// The state of the link to this rank's parent.
    enum class Parent : uint8_t { not_connected, connected, exchanges_records };
    enum class State : uint8_t { gathering, link, linking, done, failed };
    struct OutgoingMessage {
        Rank to = nobody;
        Bytes message;
    };

    explicit Bootstrap(Self self);

    /// A message from the parent or a child; anything else or malformed fails the job.
    void receive(Rank from, ByteView message);
    /// Called before this rank has met its parent: a small message over that transport takes at
    /// least latency_us.
    void found_latency(std::size_t transport, double latency_us);
    /// In state link: the local work is over. ok: it succeeded.
    void linked(bool ok);
    /// Called if this rank cannot continue (a deadline, a lost child): tells the other ranks why.
    void fail_with(const Error& error);
    /// A child has connected: if the start has failed by then, sends it the reason.
    void child_connected(Rank child);

    State state() const { return state_; }
    const Error& error() const { return error_; }
    /// Messages to send now. Links to children may open before the link to the parent: messages for
    /// the parent stay queued until then.
    std::vector<OutgoingMessage> take_outgoing(Parent parent);

    /// Children whose subtree has not joined yet, for the message at the deadline.
    std::vector<Rank> missing() const;

    // From state link on:
    bool one_host() const { return one_host_; }
    /// The number of ranks on this rank's machine, and of the cores that they may use together; 0
    /// if there were too many machines to count.
    uint32_t machine_ranks() const { return machine_ranks_; }
    uint32_t machine_cores() const { return machine_cores_; }
    /// Ranks per core on the fullest machine, equal on all ranks; 0 if that is not known.
    double crowding() const;
    /// The worst attributes of all ranks, in the order of Self::transports.
    const std::vector<LinkAttributes>& worst() const { return worst_; }
    /// The ranks' records by rank, as far as they came: as RankRecords::take(). For one call.
    std::vector<std::string> take_records() { return records_.take(); }
    /// True if every rank of this rank's subtree understands heartbeats.
    bool knows_heartbeats() const { return knows_heartbeats_; }
    // In state done:
    bool all_linked() const { return all_linked_; }

private:
    struct Machine {
        uint32_t ranks = 0;
        CoreSet cores;
    };
    enum class Kind : uint8_t { join = 1, ready, linked, go, failed, records };
    void send(Rank to, Bytes message) { outgoing_.push_back({to, std::move(message)}); }
    void send_down(const Bytes& message);
    void send_state(Kind kind, Rank to);
    void begin_link();
    void handle_records(Rank from, ByteReader& in);
    void handle_join(Rank from, ByteReader& in);
    void handle_ready(ByteReader& in);
    void advance();
    Bytes encode_state(Kind kind) const;
    bool decode_machines(ByteReader& in, bool add);
    void encode_transports(ByteWriter& out) const;
    bool decode_transports(ByteReader& in);
    void spread(const Error& error, Rank except);

    Self self_;
    std::vector<Rank> children_;
    RankRecords records_;
    std::set<Rank> record_partners_;  // neighbours that exchange records with this rank
    State state_ = State::gathering;
    Error error_;
    std::vector<OutgoingMessage> outgoing_;
    bool join_due_ = false;        // the join message for the parent is due
    std::map<Rank, bool> joined_;  // per child
    std::map<Rank, bool> linked_;  // per child, and this rank itself
    bool one_host_ = true;
    bool counted_ = true;  // machines_ is complete
    std::map<uint64_t, Machine> machines_;
    std::vector<LinkAttributes> worst_;  // of the ranks that have joined so far
    uint32_t machine_ranks_ = 0;
    uint32_t machine_cores_ = 0;
    bool all_linked_ = true;
    bool knows_heartbeats_ = true;
};

}  // namespace tutti
