// The search for the parent as a state machine: a store and a parent that answer as told.
#include "job/connecting/parent_search.h"

#include <cerrno>

#include "support/catch.h"

using namespace tutti;

namespace {

using Step = ParentSearch::SearchStep;

const Error late_store{Code::timeout, nobody, 0, "not there yet"};
const Error nothing_listens{Code::peer_lost, nobody, ECONNREFUSED, "connection refused"};

Result<std::string> record_of(Rank size, const std::string& control = "10.0.0.1:4000") {
    PeerRecord record;
    record.size = size;
    record.host_id = "host";
    record.control = control;
    return record.encode();
}

Result<std::string> failed(const Error& error) {
    return tl::unexpected(error);
}

}  // namespace

TEST_CASE("parent search: waits for the record, calls, and is connected") {
    ParentSearch search(9, 12);
    CHECK(search.parent() == 1);
    for (int looks = 0; looks < 3; ++looks) {
        REQUIRE(search.step() == Step::look_up);
        search.on_record(failed(late_store));
        REQUIRE(search.step() == Step::look_for_trouble);
        search.on_failure_check({}, false);
    }
    search.on_record(record_of(12));
    REQUIRE(search.step() == Step::call);
    CHECK(search.address().port == 4000);
    search.attached({});
    CHECK(search.step() == Step::connected);
}

TEST_CASE("parent search: asks for the record again while calls are refused, until it is late") {
    ParentSearch search(1, 2);
    for (const bool late : {false, false, true}) {
        search.on_record(record_of(2));
        REQUIRE(search.step() == Step::call);
        search.refused(nothing_listens, false);
        REQUIRE(search.step() == Step::look_for_trouble);
        CHECK(search.was_refused());
        search.on_failure_check({}, late);
    }
    REQUIRE(search.step() == Step::failed);
    CHECK(search.error().message.find("connecting to rank 0: connection refused") == 0);
}

TEST_CASE("parent search: names who is missing only where no call was refused") {
    ParentSearch search(1, 2);
    search.on_record(failed(late_store));
    search.on_failure_check({}, true);
    REQUIRE(search.step() == Step::name_missing);
    search.named_missing({Code::timeout, 0, 0, "rank 0 did not come"});
    REQUIRE(search.step() == Step::failed);
    CHECK(search.error().message == "rank 0 did not come");
}

TEST_CASE("parent search: trouble of the others is the cause, but for a parent that is hidden") {
    const Error trouble{Code::invalid, 3, 0, "rank 3 cannot join"};
    for (const bool hidden : {false, true}) {
        ParentSearch search(1, 2);
        search.on_record(record_of(2));
        search.refused(nothing_listens, hidden);
        search.on_failure_check(trouble, false);
        REQUIRE(search.step() == Step::failed);
        CHECK((search.error().message == trouble.message) == !hidden);
    }
    // The record went away since: it was not the last call that was refused.
    ParentSearch search(1, 2);
    search.on_record(record_of(2));
    search.refused(nothing_listens, true);
    search.on_failure_check({}, false);
    search.on_record(failed(late_store));
    search.on_failure_check(trouble, false);
    CHECK(search.error().message == trouble.message);
}

TEST_CASE("parent search: a parent that hangs up is called again, unless a failure is published") {
    const Error hung_up{Code::peer_lost, 0, 0, "it closed its connection"};
    ParentSearch search(1, 2);
    search.on_record(record_of(2));
    search.turned_away(hung_up, {}, true);
    REQUIRE(search.step() == Step::look_up);
    search.on_record(record_of(2));
    search.turned_away(hung_up, Error{Code::invalid, 0, 0, "size differs"}, false);
    REQUIRE(search.step() == Step::failed);
    CHECK(search.error().message == "size differs");

    ParentSearch last(1, 2);
    last.on_record(record_of(2));
    last.turned_away(hung_up, {}, false);
    CHECK(last.error().message == "connecting to rank 0: it closed its connection");
}

TEST_CASE("parent search: ends at a record that is malformed or of another size") {
    for (const auto& text : {Result<std::string>("?"), record_of(1), record_of(2, "nowhere")}) {
        ParentSearch search(1, 2);
        search.on_record(text);
        CHECK(search.step() == Step::failed);
    }
}

TEST_CASE("parent search: ends where the store fails, or this process lacks what a call takes") {
    for (const Code code : {Code::peer_lost, Code::system}) {
        ParentSearch search(1, 2);
        search.on_record(failed({code, nobody, 0, "the store is gone"}));
        REQUIRE(search.step() == Step::failed);
        CHECK(search.error().code == code);
    }
    ParentSearch search(1, 2);
    search.on_record(record_of(2));
    search.refused({Code::system, nobody, EMFILE, "too many open files"}, false);
    CHECK(search.step() == Step::failed);
}
