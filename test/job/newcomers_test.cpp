// Newcomers and the root of a job's members over a directory store.
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "job/records/newcomers.h"
#include "support/catch.h"
#include "support/folder.h"

using namespace tutti;

namespace {

const Deadline patience = Deadline::after_ms(60'000);

class Meeting {
public:
    std::unique_ptr<Store> open() const {
        return *open_store({.url = "file://" + folder_.path(), .job = "j"});
    }

private:
    test::Folder folder_;
};

RankOwner self() {
    return RankOwner::this_process(machine_id());
}

/// A ticket that is not a Newcomer's.
void put(Store& store, const std::string& slot, const std::string& text) {
    REQUIRE(store.set(slot, text, patience));
}

constexpr const char* some_id = "0123456789abcdef01234567";

}  // namespace

TEST_CASE("newcomers: seats go by the order of the queue, and the queue is empty afterwards") {
    const Meeting meeting;
    const auto store = meeting.open();
    NewcomerQueue queue(*store, self());
    for (const Rank members : {1, 5}) {
        std::vector<Rank> ranks(3, nobody);
        std::vector<std::thread> threads;
        for (Rank& rank : ranks) {
            threads.emplace_back([&] {
                const auto own = meeting.open();
                const auto seat = Newcomer(*own, self()).take_seat(patience);
                if (seat && seat->generation == "g" && seat->size == members + 3) rank = seat->rank;
            });
            while (queue.find_waiting(3, patience)->size() < threads.size()) usleep(1000);
        }
        const auto waiting = queue.find_waiting(3, patience);
        REQUIRE(waiting->size() == 3);
        REQUIRE(queue.find_waiting(2, patience)->size() == 2);
        REQUIRE(queue.seat(*waiting, "g", members, patience));
        for (std::thread& thread : threads) thread.join();
        CHECK(ranks == std::vector<Rank>{members, members + 1, members + 2});
        CHECK(queue.find_waiting(3, patience)->empty());
    }
}

TEST_CASE("newcomers: a ticket of a dead process is removed") {
    const Meeting meeting;
    const auto store = meeting.open();
    NewcomerQueue queue(*store, self());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    RankOwner dead = self();
    dead.pid = child;
    put(*store, "join/0", Ticket{some_id, 1, dead}.encode());
    put(*store, "join/1", "no ticket");
    while (!self().outlived(dead)) usleep(1000);
    CHECK(queue.find_waiting(1, patience)->empty());
    CHECK_FALSE(*store->try_get("join/0", patience));
    CHECK_FALSE(*store->try_get("join/1", patience));
}

TEST_CASE("newcomers: a ticket of another version is refused in words") {
    const Meeting meeting;
    const auto store = meeting.open();
    NewcomerQueue queue(*store, self());
    put(*store, "join/0", std::string(some_id) + " 2 something of a later version");
    CHECK(queue.find_waiting(1, patience)->empty());
    const auto answer = store->try_get(std::string("join/") + some_id, patience);
    REQUIRE((answer && *answer));
    const auto seat = NewcomerSeat::decode(**answer);
    REQUIRE(seat);
    CHECK(seat->refusal == "it speaks version 2 of the way to join, the job version 1");
}

TEST_CASE("newcomers: a refused newcomer says why, and leaves the queue") {
    const Meeting meeting;
    const auto store = meeting.open();
    Result<NewcomerSeat> told;
    std::thread newcomer([&] {
        const auto own = meeting.open();
        told = Newcomer(*own, self()).take_seat(patience);
    });
    const auto ticket = Ticket::decode(*store->get("join/0", patience));
    REQUIRE(ticket);
    NewcomerSeat none;
    none.refusal = "it speaks version 1 of the way to join, the job version 2";
    put(*store, "join/" + ticket->id, none.encode());
    newcomer.join();
    REQUIRE(!told);
    CHECK(told.error().code == Code::invalid);
    CHECK(told.error().message == "the job refused this process: " + none.refusal);
    CHECK(told.error().advice == "install the same version of tutti on all hosts");
    CHECK_FALSE(*store->try_get("join/0", patience));
}

TEST_CASE("newcomers: queue again if the store has lost the ticket, and leave it at the deadline") {
    const Meeting meeting;
    const auto store = meeting.open();
    NewcomerQueue queue(*store, self());
    std::thread newcomer([&] {
        const auto own = meeting.open();
        (void)Newcomer(*own, self()).take_seat(Deadline::after_ms(3000));
    });
    while (queue.find_waiting(1, patience)->empty()) usleep(1000);
    REQUIRE(store->remove("join/0", patience));
    while (queue.find_waiting(1, patience)->empty()) usleep(1000);
    newcomer.join();
    CHECK(queue.find_waiting(1, patience)->empty());
}

TEST_CASE("newcomers: malformed seats are none") {
    NewcomerSeat seat;
    seat.generation = "g";
    seat.rank = 2;
    seat.size = 3;
    seat.members = 2;
    const std::string sound = seat.encode();
    CHECK(NewcomerSeat::decode(sound));
    for (std::size_t bytes = 0; bytes < sound.size(); ++bytes)
        CHECK_FALSE(NewcomerSeat::decode(sound.substr(0, bytes)));
    seat.rank = 3;
    CHECK_FALSE(NewcomerSeat::decode(seat.encode()));
    seat.rank = 1;
    CHECK_FALSE(NewcomerSeat::decode(seat.encode()));
}
