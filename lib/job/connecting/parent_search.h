// Finds this rank's parent in the control tree: a state machine without I/O. The caller does the
// step() and reports its result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "job/records/peer_record.h"
#include "net/socket.h"

namespace tutti {

/// A record that a killed run left behind leads nowhere: the search asks again until its owner has
/// renewed it. The final error is the best known cause: a failure of other ranks, else the refusal
/// of the last call, else the missing ranks.
class ParentSearch {
public:
    enum class SearchStep : uint8_t {
        look_up,           // the parent's record
        call,              // address()
        look_for_trouble,  // for a failure of other ranks; then pause before the next look-up
        name_missing,      // ranks
        connected,
        failed,  // error()
    };

    ParentSearch(Rank rank, Rank size);

    SearchStep step() const { return step_; }
    Rank parent() const { return parent_; }
    const PeerRecord& record() const { return record_; }
    const net::HostPort& address() const { return address_; }
    const Error& error() const { return error_; }
    /// True if the last call was refused: then look_for_trouble follows the call, not a look-up.
    bool was_refused() const { return refused_now_; }

    /// The store's answer. timeout: the record is not there yet.
    void on_record(const Result<std::string>& text);
    /// The call was refused. hidden: only ranks on the parent's own host reach it.
    void refused(const Error& error, bool hidden);
    /// The parent took the call, then hung up or refused this rank. published: the failure that a
    /// rank has published, if any. again: the parent may be called once more.
    void turned_away(const Error& error, std::optional<Error> published, bool again);
    void attached(const Result<>& attached);
    /// late: the deadline of joining has passed.
    void on_failure_check(std::optional<Error> trouble, bool late);
    void named_missing(Error missing) { fail(std::move(missing)); }

private:
    void fail(Error error);
    void fail_here(Error error);
    void handle_record(std::string_view text);

    const Rank rank_, size_, parent_;
    SearchStep step_ = SearchStep::look_up;
    PeerRecord record_;
    net::HostPort address_;
    std::optional<Error> refused_;
    bool refused_now_ = false, hidden_ = false;  // of the last call
    Error error_;
};

}  // namespace tutti
