#include "job/records/newcomers.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/bytes.h"
#include "net/auth.h"
#include "net/serving.h"

namespace tutti {
namespace {

// The format of tickets and seats.
constexpr uint32_t present_format = 1;
constexpr std::size_t id_bytes = 12;
constexpr int64_t look_ms = 1000;  // between checks that the ticket is still in the store
constexpr int64_t tidy_ms = 1000;
constexpr uint32_t most_text_bytes = 4096;

std::string slot_key(Rank slot) {
    return fmt::format("join/{}", slot);
}
/// Set before the first newcomer takes that slot, and not removed: a look at the queue ends at
/// the first slot without it.
std::string used_key(Rank slot) {
    return fmt::format("join/{}/used", slot);
}
std::string seat_key_of(const Ticket& ticket) {
    return "join/" + ticket.id;
}
std::string end_key_of(const Ticket& ticket) {
    return "join/" + ticket.id + "/ended";
}

}  // namespace

std::string NewcomerSeat::encode() const {
    const Bytes bytes = ByteWriter()
                            .put(present_format)
                            .put_text(refusal)
                            .put_text(generation)
                            .put(rank)
                            .put(size)
                            .put(members)
                            .take();
    return std::string(as_text(bytes));
}

std::optional<NewcomerSeat> NewcomerSeat::decode(std::string_view text) {
    ByteReader in(as_bytes(text));
    const auto format = in.get<uint32_t>();
    NewcomerSeat seat;
    seat.refusal = in.get_text(most_text_bytes);
    seat.generation = in.get_text(most_text_bytes);
    seat.rank = in.get<Rank>();
    seat.size = in.get<Rank>();
    seat.members = in.get<Rank>();
    const bool sound = in.at_end() && format == present_format && seat.members > 0 &&
                       seat.rank >= seat.members && seat.rank < seat.size;
    if (!sound && (seat.refusal.empty() || !in.ok())) return std::nullopt;
    return seat;
}

std::string Ticket::encode() const {
    return fmt::format("{} {} {}", id, format, owner.encode());
}

std::optional<Ticket> Ticket::decode(const std::string& text) {
    Ticket ticket;
    std::istringstream in(text);
    in >> ticket.id >> ticket.format >> std::ws;
    if (!in || ticket.id.size() != 2 * id_bytes) return std::nullopt;
    std::string owner;
    std::getline(in, owner);
    if (ticket.format == present_format) ticket.owner = RankOwner::decode(owner);
    return ticket;
}

// ---- newcomers -------------------------------------------------------------------------------

std::string Newcomer::seat_key() const {
    return seat_key_of(ticket_);
}

Newcomer::~Newcomer() {
    will_.reset();
    if (slot_.empty()) return;
    const Deadline soon = Deadline::after_ms(tidy_ms);
    if (is_queued(soon).value_or(false)) (void)store_.remove(slot_, soon);
}

Result<> Newcomer::queue(Deadline deadline) {
    TUTTI_ASSIGN(ticket_.id, net::random_hex(id_bytes));
    ticket_.format = present_format;
    ticket_.owner = self_;
    std::string existing;
    // A store that notices the end of this process tells the root.
    TUTTI_ASSIGN(will_, store_.set_will(end_key_of(ticket_), "", deadline));
    for (Rank slot = 0; slot < most_newcomers; ++slot) {
        if (auto noted = store_.claim(used_key(slot), "", existing, deadline); !noted)
            return tl::unexpected(std::move(noted).error());
        TUTTI_ASSIGN(const bool mine,
                     store_.claim(slot_key(slot), ticket_.encode(), existing, deadline));
        if (!mine) continue;
        slot_ = slot_key(slot);
        return {};
    }
    return fail(Code::system, "{} processes wait to join this job already (store {})",
                most_newcomers, store_.describe())
        .advice("let the members call tutti_comm_grow, or use another TUTTI_JOB");
}

Result<bool> Newcomer::is_queued(Deadline deadline) const {
    TUTTI_ASSIGN(const auto text, store_.try_get(slot_, deadline));
    return text && *text == ticket_.encode();
}

// The store may have lost the ticket: it ended with its process, and another rank serves it anew.
Result<NewcomerSeat> Newcomer::take_seat(Deadline deadline) {
    const int64_t start_ns = now_ns();
    TUTTI_TRY(queue(deadline));
    for (;;) {
        auto text = store_.get(seat_key(), deadline.within_ms(look_ms));
        if (text) {
            // Only this process removes its ticket: a directory store removes the files of a
            // process that leaves, and another ticket may have the same name by then.
            const Deadline soon = Deadline::after_ms(tidy_ms);
            (void)store_.remove(slot_, soon);
            (void)store_.remove(seat_key(), soon);
            slot_.clear();
            will_.reset();
            auto seat = NewcomerSeat::decode(*text);
            if (seat && seat->refusal.empty()) return *std::move(seat);
            return fail(Code::invalid, "the job refused this process: {}",
                        seat ? seat->refusal : "its answer is malformed")
                .advice("install the same version of tutti on all hosts");
        }
        if (text.error().code != Code::timeout) return tl::unexpected(std::move(text).error());
        if (deadline.passed() || net::wait_cancelled())
            return fail(Code::timeout,
                        "no member of this job called tutti_comm_grow for this process within {} "
                        "ms (store {})",
                        (now_ns() - start_ns) / 1'000'000, store_.describe())
                .advice(
                    "let all members call tutti_comm_grow, compare TUTTI_JOB and TUTTI_STORE with "
                    "theirs, or raise TUTTI_TIMEOUT_MS");
        const auto soon = deadline.within_ms(store_answer_ms);
        TUTTI_ASSIGN(const bool queued, is_queued(soon));
        if (queued) continue;
        TUTTI_ASSIGN(const auto seated, store_.try_get(seat_key(), soon));
        if (!seated) TUTTI_TRY(queue(soon));
    }
}

// ---- members ---------------------------------------------------------------------------------

Result<bool> NewcomerQueue::has_ended(const Ticket& ticket, Deadline deadline) const {
    if (self_.outlived(ticket.owner)) return true;
    TUTTI_ASSIGN(const auto told, store_.try_get(end_key_of(ticket), deadline));
    return told.has_value();
}

Result<> NewcomerQueue::remove(const QueuedTicket& entry, Deadline deadline) {
    TUTTI_TRY(store_.remove(entry.slot, deadline));
    TUTTI_TRY(store_.remove(seat_key_of(entry.ticket), deadline));
    return store_.remove(end_key_of(entry.ticket), deadline);
}

Result<std::vector<NewcomerQueue::QueuedTicket>> NewcomerQueue::find_waiting(std::size_t most,
                                                                             Deadline deadline) {
    std::vector<QueuedTicket> found;
    for (Rank slot = 0; slot < most_newcomers && found.size() < most; ++slot) {
        TUTTI_ASSIGN(const auto text, store_.try_get(slot_key(slot), deadline));
        if (!text) {
            TUTTI_ASSIGN(const auto used, store_.try_get(used_key(slot), deadline));
            // A directory forgets the keys of a process that has closed it.
            if (!used && !store_.forgets()) break;
            continue;
        }
        const auto ticket = Ticket::decode(*text);
        if (!ticket) {
            TUTTI_TRY(store_.remove(slot_key(slot), deadline));
            continue;
        }
        QueuedTicket entry{slot_key(slot), *ticket};
        if (ticket->format != present_format) {
            NewcomerSeat none;
            none.refusal =
                fmt::format("it speaks version {} of the way to join, the job version {}",
                            ticket->format, present_format);
            TUTTI_TRY(store_.set(seat_key_of(*ticket), none.encode(), deadline));
            continue;
        }
        TUTTI_ASSIGN(const bool ended, has_ended(*ticket, deadline));
        if (ended) {
            TUTTI_TRY(remove(entry, deadline));
            continue;
        }
        TUTTI_ASSIGN(const auto seated, store_.try_get(seat_key_of(*ticket), deadline));
        if (!seated) found.push_back(std::move(entry));
    }
    return found;
}

Result<> NewcomerQueue::seat(const std::vector<QueuedTicket>& entries,
                             const std::string& generation, Rank members, Deadline deadline) {
    NewcomerSeat seat;
    seat.generation = generation;
    seat.size = members + static_cast<Rank>(entries.size());
    seat.members = members;
    seat.rank = members;
    for (const QueuedTicket& entry : entries) {
        std::string existing;
        // Another communicator of the job may take the same newcomer at the same time. Then the
        // seat stays empty, and this attempt fails.
        TUTTI_TRY(store_.claim(seat_key_of(entry.ticket), seat.encode(), existing, deadline));
        ++seat.rank;
    }
    return {};
}

}  // namespace tutti
