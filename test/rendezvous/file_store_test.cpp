#include <sys/stat.h>

#include <fstream>

#include "store_fixture.h"

using namespace tutti;
namespace fs = std::filesystem;

namespace {

Result<std::unique_ptr<Store>> open_at(const std::string& url) {
    return open_store({.url = url, .job = "job"});
}

std::size_t entries_below(const std::string& path) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::recursive_directory_iterator(path)) ++count;
    return count;
}

}  // namespace

TEST_CASE("file store: makes its directory, and the parents of it, for the owner only") {
    const TemporaryDirectory directory;
    const auto store = open_at(directory.url() + "/not/there/yet/");
    REQUIRE(store);
    REQUIRE((*store)->set("key", "value", soon()));
    struct stat info {};
    REQUIRE(stat((directory.path() + "/not/there/yet").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
}

TEST_CASE("file store: a path below a regular file is an error that names it and the cause") {
    const TemporaryDirectory directory;
    const std::string file = directory.path() + "/file";
    std::ofstream(file) << "x";
    const auto as_directory = open_at("file://" + file);
    REQUIRE(!as_directory);
    CHECK(contains(as_directory.error().message, file));
    CHECK((contains(as_directory.error().message, "not a directory") ||
           contains(as_directory.error().message, "Not a directory")));
    const auto below = open_at("file://" + file + "/sub");
    REQUIRE(!below);
    CHECK(contains(below.error().message, file + "/sub"));
    CHECK(contains(below.error().message, "Not a directory"));
}

TEST_CASE("file store: a place where nothing may be written is named, with the cause") {
    const auto store = open_at("file:///proc/tutti-test");
    REQUIRE(!store);
    CHECK(contains(store.error().message, "/proc/tutti-test"));
    CHECK(store.error().sys_errno != 0);
    if (geteuid() == 0) return;  // nothing is forbidden to root
    const TemporaryDirectory directory;
    fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
    const auto forbidden = open_at(directory.url());
    REQUIRE(!forbidden);
    CHECK(contains(forbidden.error().message, directory.path()));
    CHECK(contains(forbidden.error().message, "Permission denied"));
}

TEST_CASE("file store: every rank takes its own keys along, the last one the directory") {
    const TemporaryDirectory directory;
    auto first = open_at(directory.url()), second = open_at(directory.url());
    REQUIRE(first);
    REQUIRE(second);
    std::string existing;
    REQUIRE((*first)->set("a", "1", soon()));
    REQUIRE((*first)->claim("b", "2", existing, soon()));
    REQUIRE((*second)->set("c", "3", soon()));
    first->reset();
    CHECK((*second)->get("c", soon()).value() == "3");
    CHECK(!(*second)->get("a", Deadline::after_ms(10)));
    CHECK(!(*second)->get("b", Deadline::after_ms(10)));
    second->reset();
    CHECK(entries_below(directory.path()) == 0);
}

TEST_CASE("file store: a claim lost leaves nothing behind and is not taken along") {
    const TemporaryDirectory directory;
    auto winner = open_at(directory.url()), loser = open_at(directory.url());
    std::string existing;
    REQUIRE((*winner)->claim("key", "w", existing, soon()).value());
    REQUIRE((*loser)->claim("key", "l", existing, soon()).value() == false);
    CHECK(entries_below(directory.path()) == 2);  // the job's directory and the key
    loser->reset();
    CHECK((*winner)->get("key", soon()).value() == "w");
}

TEST_CASE("file store: works on when another rank removed the empty directory") {
    const TemporaryDirectory directory;
    auto stays = open_at(directory.url()), leaves = open_at(directory.url());
    leaves->reset();
    CHECK(entries_below(directory.path()) == 0);
    CHECK(!(*stays)->get("key", Deadline::after_ms(10)));
    REQUIRE((*stays)->set("key", "value", soon()));
    CHECK((*stays)->get("key", soon()).value() == "value");
}

TEST_CASE("file store: keys cannot leave the job's directory") {
    const TemporaryDirectory directory;
    const std::string root = directory.path() + "/root";
    auto store = open_store({.url = "file://" + root, .job = "../../job"});
    REQUIRE(store);
    REQUIRE((*store)->set("../../../escaped", "x", soon()));
    REQUIRE((*store)->set("/escaped", "x", soon()));
    for (const auto& entry : fs::directory_iterator(directory.path()))
        CHECK(entry.path().string() == root);
    CHECK(entries_below(root) == 3);
    CHECK((*store)->remove("../../../escaped", soon()));
    CHECK(entries_below(root) == 2);
}
