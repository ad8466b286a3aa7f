#include "job/connecting/parent_search.h"

#include <fmt/format.h>

#include <utility>

#include "base/errno_class.h"
#include "control/tree.h"
#include "job/connecting/hidden_peer.h"

namespace tutti {
namespace {

constexpr const char* hidden_place = " of another host, which listens on its loopback only";

}  // namespace

ParentSearch::ParentSearch(Rank rank, Rank size)
    : rank_(rank), size_(size), parent_(tree_parent(rank)) {}

void ParentSearch::fail(Error error) {
    error_ = std::move(error);
    step_ = SearchStep::failed;
}

/// The other ranks hear of this rank's own failures, so the error names it.
void ParentSearch::fail_here(Error error) {
    fail(on_rank(rank_, std::move(error)));
}

void ParentSearch::on_record(const Result<std::string>& text) {
    refused_now_ = false;
    if (text) return handle_record(*text);
    if (text.error().code == Code::peer_lost) return fail_here(text.error());
    if (text.error().code != Code::timeout) return fail_here(refused_ ? *refused_ : text.error());
    step_ = SearchStep::look_for_trouble;
}

void ParentSearch::handle_record(std::string_view text) {
    auto record = PeerRecord::decode(text);
    if (!record)
        return fail_here(fail_rank(Code::system, parent_,
                                   "the record of rank {} in the store is malformed", parent_)
                             .advice(malformed_record_advice)
                             .value());
    record_ = *std::move(record);
    // The parent finds any other difference and tells all ranks. But a parent with a smaller size
    // has no place for this rank.
    if (rank_ >= record_.size)
        return fail_here(fail_rank(Code::invalid, parent_,
                                   "size is '{}' on rank {} but '{}' on rank {}", size_, rank_,
                                   record_.size, parent_)
                             .advice("set TUTTI_SIZE to the same value on every rank")
                             .value());
    auto address = net::parse_host_port(record_.control);
    if (!address)
        return fail_here(
            wrap(address.error(), fmt::format("control address of rank {}", parent_)).value());
    address_ = *std::move(address);
    step_ = SearchStep::call;
}

void ParentSearch::refused(const Error& error, bool hidden) {
    refused_now_ = true;
    hidden_ = hidden;
    refused_ =
        wrap(error, fmt::format("connecting to rank {}{}", parent_, hidden ? hidden_place : ""))
            .value();
    if (hidden) refused_->advice = hidden_peer_advice;
    if (classify_errno(refused_->sys_errno) != ErrnoClass::peer) return fail_here(*refused_);
    step_ = SearchStep::look_for_trouble;
}

void ParentSearch::turned_away(const Error& error, std::optional<Error> published, bool again) {
    // A parent that has given up, too, closes the connection.
    if (published) return fail(*std::move(published));
    if (!again)
        return fail_here(wrap(error, fmt::format("connecting to rank {}", parent_)).value());
    step_ = SearchStep::look_up;
}

void ParentSearch::attached(const Result<>& attached) {
    if (!attached)
        return fail_here(
            wrap(attached.error(), fmt::format("connecting to rank {}", parent_)).value());
    step_ = SearchStep::connected;
}

void ParentSearch::on_failure_check(std::optional<Error> trouble, bool late) {
    // If the parent is hidden from this rank, other ranks only know that this rank is missing.
    if (trouble && !(refused_now_ && hidden_)) return fail(*std::move(trouble));
    if (trouble || (late && refused_)) return fail_here(*refused_);
    step_ = late ? SearchStep::name_missing : SearchStep::look_up;
}

}  // namespace tutti
