#include "handles/reconfigure.h"

#include <fmt/format.h>

#include <utility>

#include "base/hash.h"
#include "handles/handle_store.h"
#include "run/request.h"

namespace tutti {
namespace {

constexpr int64_t withdraw_ms = 1000;

Result<> check(const Reconfiguration& wanted) {
    if (Completion::calling_back())
        return fail(Code::invalid, "a completion callback may not make a communicator")
            .advice("let another thread call tutti_comm_reconfigure");
    if (wanted.uuid.empty() || wanted.uuid.size() > max_uuid_bytes)
        return fail(Code::invalid, "the uuid has {} bytes", wanted.uuid.size())
            .advice("give a text of 1 to {} bytes, the same in all processes", max_uuid_bytes);
    if (wanted.handles.empty())
        return fail(Code::invalid, "the list of handles is empty")
            .advice("give the handle of every process, that of this one, too");
    return {};
}

Result<Meeting> prepare(const Config& config, const Reconfiguration& wanted) {
    Meeting meeting;
    meeting.uuid = wanted.uuid;
    TUTTI_ASSIGN(meeting.list, HandleList::decode(wanted.handles, config));
    TUTTI_ASSIGN(meeting.own, own_handles::find(config));
    TUTTI_ASSIGN(meeting.rank, meeting.list.rank_of(meeting.own.handle));
    TUTTI_TRY(own_handles::use_uuid(config, wanted.uuid));
    // Processes with another list or uuid do not meet.
    meeting.generation =
        fmt::format("meeting/{:016x}", mix_hash(hash_of(wanted.uuid), meeting.list.hash()));
    return meeting;
}

}  // namespace

Result<std::shared_ptr<Communicator>> reconfigure(const Config& given,
                                                  const Reconfiguration& wanted) {
    TUTTI_TRY(check(wanted));
    TUTTI_ASSIGN(const Meeting meeting, prepare(given, wanted));
    Config config = given;
    config.rank = meeting.rank;
    config.size = meeting.list.size();
    config.store = "tcp://" + meeting.list[0].address;
    config.store_hosted = config.store_in_job = true;
    config.shares_store = config.by_handles = true;
    const auto limit =
        TimeLimit::from_now(wanted.timeout_ms < 0 ? given.timeout_ms : wanted.timeout_ms);
    config.join_limit = limit;
    std::shared_ptr<Store> store;
    if (config.size > 1) {
        TUTTI_ASSIGN(store, open_handle_store(meeting, given, limit.by));
    }
    TUTTI_ASSIGN(auto comm, Communicator::join(std::move(config), meeting.generation, store));
    if (store) withdraw_statement(meeting, Deadline::after_ms(withdraw_ms));
    return comm;
}

}  // namespace tutti
