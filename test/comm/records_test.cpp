// Every rank has every rank's addresses from the start: no rank needs the store any more. Ranks
// that exchange no records, as those of version 0.1.0, join the same job.
#include <atomic>

#include "comm/job.h"
#include "control/tree_message.h"
#include "net/acceptor.h"
#include "net/socket.h"

using namespace comm_test;

namespace {

/// Answers until it ends, as when the process that serves it has been killed.
class MortalStore final : public StoreBehind {
public:
    MortalStore(std::unique_ptr<Store> inner, const std::atomic<bool>& ended)
        : StoreBehind(std::move(inner)), ended_(ended) {}

private:
    Result<> before_look(Deadline) override {
        if (ended_) return fail(Code::peer_lost, "the store has ended");
        return {};
    }
    const std::atomic<bool>& ended_;
};

std::string exchange(Communicator& comm, bool sends_first, Rank to, Rank from) {
    const auto pass = [&](bool sends) -> Result<> {
        Rank data = comm.rank();
        Transfer transfer;
        transfer.sends = sends;
        transfer.peer = sends ? to : from;
        transfer.memory = reinterpret_cast<std::byte*>(&data);
        transfer.bytes = sizeof data;
        TUTTI_TRY(comm.messages().run(transfer));
        if (!sends && data != from) return fail(Code::system, "rank {} sent {}", from, data);
        return {};
    };
    for (const bool sends : {sends_first, !sends_first})
        if (const auto passed = pass(sends); !passed) return error_text(passed.error());
    return "";
}

/// Runs body once every rank has joined and the store has ended.
std::vector<std::string> run_without_store(
    Job job, const std::function<std::string(Communicator&, Rank)>& body) {
    std::atomic<bool> ended{false};
    std::atomic<Rank> joined{0};
    job.store = [&](std::unique_ptr<Store> inner, Rank) -> std::shared_ptr<Store> {
        return std::make_shared<MortalStore>(std::move(inner), ended);
    };
    return run(job, [&](Communicator& comm, Rank rank) -> std::string {
        if (++joined == job.ranks) ended = true;
        if (!eventually([&] {
                comm.progress().advance();
                return ended.load();
            }))
            return "the others do not join";
        return body(comm, rank);
    });
}

}  // namespace

TEST_CASE("records: ranks that have never talked connect after the store's end") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    const auto progress = GENERATE(ProgressMode::thread, ProgressMode::manual);
    INFO(transport << ", manual " << (progress == ProgressMode::manual));
    Job job{10, transport};  // rank 9 is below rank 1, so it has never met rank 0 either
    job.change = [&](Config& config) { config.progress = progress; };
    expect_no_problem(run_without_store(job, [](Communicator& comm, Rank rank) -> std::string {
        const Rank ranks = comm.size();
        if (auto problem = exchange(comm, rank % 2 == 0, (rank + 3) % ranks, (rank + 7) % ranks);
            !problem.empty())
            return problem;
        auto part = comm.split(rank % 3, -rank);
        if (!part) return part.error().message;
        float x = 1;
        const auto summed = (*part)->calls().run(sum_of(1), &x, &x);
        const Rank members = (*part)->size();
        (*part)->destroy();
        if (!summed) return summed.error().message;
        return x == static_cast<float>(members) ? "" : "a wrong sum";
    }));
}

TEST_CASE("records: long addresses take several messages") {
    constexpr std::size_t longest_host_id = 4096;
    Job job{16, "inproc"};
    static_assert(16 * longest_host_id > RankRecords::max_chunk_bytes);
    job.change = [](Config& config) { config.host_id = std::string(longest_host_id, 'h'); };
    expect_no_problem(run_without_store(job, [](Communicator& comm, Rank rank) {
        return exchange(comm, rank % 2 == 0, (rank + 5) % 16, (rank + 11) % 16);
    }));
}

TEST_CASE("records: control messages pass a rank that has left after the store's end") {
    Job job{10, "inproc"};  // rank 9 is below rank 1
    std::atomic<bool> left{false}, told{false};
    expect_no_problem(run_without_store(job, [&](Communicator& comm, Rank rank) -> std::string {
        if (rank == 1) {
            comm.destroy();
            left = true;
            return "";
        }
        if (!eventually([&] { return left.load(); })) return "rank 1 does not leave";
        if (rank == 0) comm.abort();
        if (rank == 9) {
            std::byte data{};
            Transfer receive;
            receive.peer = 0;
            receive.memory = &data;
            receive.bytes = 1;
            const auto done = comm.messages().run(receive);
            told = true;
            if (done) return "a message that no rank sent has come";
            return done.error().code == Code::aborted ? "" : error_text(done.error());
        }
        return eventually([&] { return told.load(); }) ? "" : "rank 9 is told nothing";
    }));
}

TEST_CASE("records: the ranks of a larger job look each other up in the store") {
    Job job{4, "tcp"};
    job.change = [](Config& config) { config.exchange_records = false; };
    const auto meet = [](Communicator& comm, Rank rank) {
        return exchange(comm, rank < 2, (rank + 2) % 4, (rank + 2) % 4);
    };
    expect_no_problem(run(job, meet));
    for (const std::string& problem : run_without_store(job, meet)) {
        INFO(problem);
        CHECK(contains(problem, "the store has ended"));
    }
}

TEST_CASE("records: ranks that exchange none join, and others look them up in the store") {
    struct Case {
        Rank without;  // records; ranks 9 and 10 are below rank 1, the others below rank 0
        Rank a, b;
        bool known;  // a and b know each other without the store
    };
    const auto one = GENERATE(Case{0, 9, 10, true}, Case{0, 2, 7, false}, Case{1, 2, 7, true},
                              Case{1, 9, 10, false}, Case{9, 4, 10, true}, Case{9, 9, 4, false});
    INFO("without records: rank " << one.without << "; ranks " << one.a << " and " << one.b);
    Job job{11, "inproc"};
    job.change = [&](Config& config) { config.exchange_records = config.rank != one.without; };
    std::atomic<int> over{0};
    const auto meet = [&](Communicator& comm, Rank rank) -> std::string {
        if (rank != one.a && rank != one.b)
            return eventually([&] { return over == 2; }) ? "" : "the two ranks do not meet";
        const Rank peer = one.a + one.b - rank;
        auto problem = exchange(comm, rank == one.a, peer, peer);
        ++over;
        return problem;
    };
    if (one.known) return expect_no_problem(run_without_store(job, meet));
    for (const std::string& problem : run_without_store(job, meet))
        CHECK((problem == "" || contains(problem, "the store has ended")));
    CHECK(over == 2);
    over = 0;
    expect_no_problem(run(job, meet));
}

TEST_CASE("records: a rank whose record cannot be read fails the start and is named") {
    const JobFolder folder;
    const auto opened = [&] { return open_store({.url = folder.url(), .job = "records"}); };
    auto own = opened(), others = opened();
    REQUIRE((own && others));
    Config config;
    config.size = 2;
    config.job = "records";
    config.transports = {"inproc"};
    config.timeout_ms = 60'000;
    std::string heard;
    std::thread root([&] {
        const auto comm = Communicator::create(config, std::move(*own));
        heard = comm ? "joined" : error_text(comm.error());
    });
    const Deadline patience = Deadline::after_ms(20'000);
    const auto record = (*others)->get("c0/rank/0", patience);
    const auto address = record.and_then([&](const std::string& text) -> Result<net::HostPort> {
        const auto decoded = PeerRecord::decode(text);
        if (!decoded || !decoded->exchanges_records)
            return fail(Code::system, "rank 0 has no record, or exchanges none");
        return net::parse_host_port(decoded->control);
    });
    if (address) {
        const auto fd = net::connect_tcp(*address, {.deadline = patience});
        Bootstrap child({.rank = 1,
                         .size = 2,
                         .transports = {{.max_message_bytes = 4096}},
                         .record = "no record of addresses"});
        const Bytes hello = ControlTree::Hello{.rank = 1}.encode();
        bool sent = fd && net::introduce(fd->get(), {"", "control/records"}, hello, patience);
        for (const auto& out : child.take_outgoing(Bootstrap::Parent::exchanges_records)) {
            const TreeMessage message{.topic = TreeMessage::Topic::bootstrap, .body = out.message};
            sent = sent && net::send_frame(fd->get(), message.encode(), patience);
        }
        CHECK(sent);
        root.join();
    } else {
        root.join();
    }
    CHECK(address.has_value());
    CHECK(contains(heard, "the record of rank 1 from the control tree is malformed"));
    CHECK(contains(heard, "same version of tutti"));
}

TEST_CASE("records: a rank with too long addresses does not join, and says why") {
    const JobFolder folder;
    Config config;
    config.size = 2;
    config.transports = {"inproc"};
    config.host_id = std::string(RankRecords::max_record_bytes, 'h');
    auto store = open_store({.url = folder.url(), .job = "records"});
    REQUIRE(store);
    const auto comm = Communicator::create(config, std::move(*store));
    REQUIRE(!comm);
    CHECK(comm.error().code == Code::invalid);
    CHECK(comm.error().rank == 0);
    CHECK(contains(comm.error().message, "the addresses of rank 0 have 24"));
    CHECK(contains(comm.error().message, "at most 24576"));
}
