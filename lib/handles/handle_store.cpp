#include "handles/handle_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "job/records/peer_directory.h"
#include "net/socket.h"

namespace tutti {
namespace {

constexpr int64_t first_look_ms = 200, last_look_ms = 2000;
constexpr int64_t look_at_one_ms = 1000;
constexpr int most_at_once = 8;  // ranks in one look
constexpr const char* leave_it_out =
    "leave its handle out, and call tutti_comm_reconfigure with a new uuid; a process that was "
    "started again has a new handle";

// A rank's list, as it states it to the others.
struct Statement {
    Rank rank = 0, size = 0;
    uint64_t hash = 0, set_hash = 0;

    std::string encode() const {
        const Bytes bytes = ByteWriter().put(rank).put(size).put(hash).put(set_hash).take();
        return std::string(as_text(bytes));
    }
    static Statement decode(std::string_view text) {
        ByteReader reader(as_bytes(text));
        Statement statement;
        statement.rank = reader.get<Rank>();
        statement.size = reader.get<Rank>();
        statement.hash = reader.get<uint64_t>();
        statement.set_hash = reader.get<uint64_t>();
        return statement;
    }
};

std::string key_of(const std::string& uuid) {
    return "lists/" + uuid;
}

// The key of an objection to a list, which a process with another one sets.
std::string objection_key(const std::string& uuid, uint64_t list) {
    return fmt::format("objections/{:016x}/{}", list, uuid);
}

Error ended(const Handle& handle, Rank rank, const Error& cause, Deadline deadline) {
    const std::string found =
        cause.code == Code::auth
            ? fmt::format("another process is at its address {}", handle.address)
            : fmt::format("its address {} does not answer ({})", handle.address,
                          std::generic_category().message(cause.sys_errno));
    Error error{Code::peer_lost, rank, cause.sys_errno,
                fmt::format("the process of handle {} (rank {}) has ended: {}", rank, rank, found),
                leave_it_out};
    const auto at = net::parse_host_port(handle.address);
    if (at && net::is_loopback(at->host, deadline).value_or(false))
        error.advice +=
            "; if it runs on another host, set TUTTI_SECRET or TUTTI_IFACE, without which its "
            "handle leads to this host";
    return error;
}

class HandleStore final : public Store {
public:
    HandleStore(Meeting meeting, Config config, std::shared_ptr<Store> first)
        : meeting_(std::move(meeting)), config_(std::move(config)), first_(std::move(first)) {}

    Result<> state(Deadline deadline);

    Result<> set(const std::string& key, std::string_view value, Deadline deadline) override {
        return named(first_->set(key, value, deadline));
    }
    Result<std::string> get(const std::string& key, Deadline deadline) override {
        return named(first_->get(key, deadline));
    }
    Result<std::optional<std::string>> try_get(const std::string& key, Deadline deadline) override {
        return named(first_->try_get(key, deadline));
    }
    Result<bool> claim(const std::string& key, std::string_view value, std::string& existing,
                       Deadline deadline) override {
        return named(first_->claim(key, value, existing, deadline));
    }
    Result<> remove(const std::string& key, Deadline deadline) override {
        return named(first_->remove(key, deadline));
    }
    Result<std::unique_ptr<Will>> set_will(const std::string& key, std::string_view value,
                                           Deadline deadline) override {
        return first_->set_will(key, value, deadline);
    }
    std::string describe() const override {
        return fmt::format("{} of handle 0", first_->describe());
    }
    std::optional<Error> obstacle() override;
    std::string remedy() const override {
        return fmt::format(
            "call tutti_comm_reconfigure in all {} processes with uuid '{}' and the same handles, "
            "or leave out the handles of processes that will not call",
            meeting_.list.size(), meeting_.uuid);
    }

private:
    /// The first process ends with its store, and the other ranks get another list without it.
    template <typename AnyResult>
    AnyResult named(AnyResult result) const {
        if (!result && result.error().code == Code::peer_lost) result.error().advice = leave_it_out;
        return result;
    }
    Result<> compare(const Statement& other) const;
    /// The error of a statement in a store, if it is there and of another list.
    std::optional<Error> difference(const Result<std::optional<std::string>>& found) const;
    std::optional<Error> difference_at(Rank rank) const;
    /// The same for some ranks that have not joined yet. An error, too, if a process has ended.
    std::optional<Error> check_missing(Deadline patience);

    const Meeting meeting_;
    const Config config_;
    const std::shared_ptr<Store> first_;
    int64_t next_look_ns_ = now_ns() + first_look_ms * 1'000'000;
    int64_t pause_ms_ = first_look_ms;
    Rank first_missing_ = 1;  // all ranks before it have joined
};

Result<> HandleStore::compare(const Statement& other) const {
    const HandleList& list = meeting_.list;
    if (other.hash == list.hash()) return {};
    std::string difference;
    if (other.size != list.size())
        difference = fmt::format("has {} handle{}", other.size, other.size == 1 ? "" : "s");
    else if (other.set_hash == list.set_hash())
        difference = "has the same handles in another order";
    else
        difference = "has other handles";
    return fail_rank(Code::mismatch, other.rank,
                     "the processes have different lists for uuid '{}': that of this rank {} has "
                     "{} handle{}, that of rank {} of the other list {}",
                     meeting_.uuid, meeting_.rank, list.size(), list.size() == 1 ? "" : "s",
                     other.rank, difference)
        .advice(
            "give all processes the same handles in the same order, and each list a uuid of its "
            "own")
        .on(meeting_.rank);
}

// The own store first: then the first process of any list can find the statement there.
Result<> HandleStore::state(Deadline deadline) {
    const HandleList& list = meeting_.list;
    const std::string key = key_of(meeting_.uuid);
    const std::string own =
        Statement{meeting_.rank, list.size(), list.hash(), list.set_hash()}.encode();
    std::string existing;
    for (Store* store : {meeting_.own.store.get(), first_.get()}) {
        TUTTI_ASSIGN(const bool is_first, store->claim(key, own, existing, deadline));
        const auto same = is_first ? Result<>() : compare(Statement::decode(existing));
        if (!same) {
            const uint64_t other = Statement::decode(existing).hash;
            (void)store->set(objection_key(meeting_.uuid, other), own, deadline);
            return same;
        }
        if (meeting_.rank == 0) break;  // both are the same
    }
    return {};
}

std::optional<Error> HandleStore::difference(
    const Result<std::optional<std::string>>& found) const {
    if (!found || !*found) return std::nullopt;
    const auto same = compare(Statement::decode(**found));
    return same ? std::nullopt : std::optional(same.error());
}

std::optional<Error> HandleStore::difference_at(Rank rank) const {
    const Deadline patience = Deadline::after_ms(look_at_one_ms);
    auto store = open_process_store(meeting_.list[rank], rank, config_, patience);
    if (!store && store.error().code == Code::peer_lost) return std::move(store).error();
    if (!store) return std::nullopt;
    return difference((*store)->try_get(key_of(meeting_.uuid), patience));
}

std::optional<Error> HandleStore::check_missing(Deadline patience) {
    int looks = 0;
    for (Rank rank = first_missing_; rank < meeting_.list.size() && looks < most_at_once; ++rank) {
        const auto record =
            first_->try_get(PeerDirectory::key(meeting_.generation, rank), patience);
        if (!record) break;
        if (*record) {
            if (looks == 0) first_missing_ = rank + 1;
            continue;
        }
        ++looks;
        if (auto found = difference_at(rank)) return found;
    }
    return std::nullopt;
}

std::optional<Error> HandleStore::obstacle() {
    if (now_ns() < next_look_ns_) return std::nullopt;
    const Deadline patience = Deadline::after_ms(look_at_one_ms);
    auto found =
        difference(first_->try_get(objection_key(meeting_.uuid, meeting_.list.hash()), patience));
    if (!found && meeting_.rank == 0) found = check_missing(patience);
    pause_ms_ = std::min(2 * pause_ms_, last_look_ms);
    next_look_ns_ = now_ns() + pause_ms_ * 1'000'000;
    return found;
}

}  // namespace

Result<std::unique_ptr<Store>> open_process_store(const Handle& handle, Rank rank,
                                                  const Config& config, Deadline deadline) {
    StoreOptions options;
    options.url = "tcp://" + handle.address;
    options.job = handle.store_job();
    options.secret = config.secret;
    options.rank = rank;
    options.hosted = options.in_job = true;
    options.server = rank;
    options.insecure = config.insecure;
    options.deadline = deadline;
    auto store = open_store(options);
    if (store) return store;
    // The handle's proof is right, so another process has taken over the port of one that ended.
    const Code code = store.error().code;
    if (code == Code::peer_lost || code == Code::auth)
        return tl::unexpected(ended(handle, rank, store.error(), deadline));
    return store;
}

Result<std::unique_ptr<Store>> open_handle_store(const Meeting& meeting, const Config& config,
                                                 Deadline deadline) {
    std::shared_ptr<Store> first = meeting.own.store;
    if (meeting.rank != 0) {
        TUTTI_ASSIGN(first, open_process_store(meeting.list[0], 0, config, deadline));
    }
    auto store = std::make_unique<HandleStore>(meeting, config, std::move(first));
    TUTTI_TRY(store->state(deadline));
    return store;
}

void withdraw_statement(const Meeting& meeting, Deadline deadline) {
    const auto removed = meeting.own.store->remove(key_of(meeting.uuid), deadline);
    if (!removed) log::debug("rank {}: {}", meeting.rank, removed.error().message);
}

}  // namespace tutti
