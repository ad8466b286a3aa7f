// Results, bytes, settings, clocks, sets of numbers.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/errno_class.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/id_set.h"
#include "base/result.h"
#include "base/told_error.h"
#include "config/config.h"
#include "config/misspelt.h"
#include "config/small_file.h"
#include "os/process.h"
#include "support/catch.h"

using namespace tutti;

namespace {

GetEnv environment(std::map<std::string, std::string> variables) {
    return [variables = std::move(variables)](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}

}  // namespace

TEST_CASE("result: an error keeps its code, rank and errno on the way up") {
    const auto inner = []() -> Result<int> {
        return fail_rank(Code::peer_lost, 3, "rank {} is gone", 3);
    };
    const auto outer = [&]() -> Result<> {
        TUTTI_ASSIGN(const int value, inner());
        (void)value;
        return {};
    };
    const auto result = outer();
    REQUIRE_FALSE(result);
    REQUIRE(result.error().code == Code::peer_lost);
    REQUIRE(result.error().rank == 3);
    const auto wrapped = wrap(result.error(), "allreduce");
    REQUIRE(wrapped.value().message == "allreduce: rank 3 is gone");
    REQUIRE(fail_errno(ENOMEM, "mapping").value().code == Code::no_memory);
    REQUIRE(fail_errno(EACCES, "opening").value().message == "opening: Permission denied");
}

TEST_CASE("errors: the text names the rank that reports, and ends with the advice") {
    const Error given = fail_rank(Code::invalid, 3, "root {} is out of range", 9)
                            .advice("give a rank from 0 to {}", 3)
                            .on(1)
                            .value();
    CHECK(error_text(given) ==
          "rank 1: root 9 is out of range. What to do: give a rank from 0 to 3");
    CHECK(on_rank(2, given).reporter == 1);
    const auto of_code = [](Code code, Rank rank) {
        return error_text(on_rank(0, fail_rank(code, rank, "timed out").value()));
    };
    CHECK(of_code(Code::timeout, nobody) ==
          "rank 0: timed out. What to do: look at what the other ranks do; if they are only slow, "
          "raise TUTTI_TIMEOUT_MS");
    CHECK(of_code(Code::timeout, 2) ==
          "rank 0: timed out. What to do: look at what rank 2 does; if it is only slow, raise "
          "TUTTI_TIMEOUT_MS");
    CHECK(error_text(fail_errno(EMFILE, "cannot open").value()) ==
          "cannot open: Too many open files. What to do: raise this process's limit of open files "
          "(ulimit -n)");
}

TEST_CASE("errors: one that another rank tells of has its message and its advice apart again") {
    const Error error =
        fail_rank(Code::invalid, 3, "sizes differ").advice("set TUTTI_SIZE").value();
    const Error told = told_error(error.code, error.rank, 4, error_text(error));
    CHECK(told.code == Code::invalid);
    CHECK(told.rank == 3);
    CHECK(told.message == "sizes differ");
    CHECK(told.advice == "set TUTTI_SIZE");
    CHECK(error_text(told) == error_text(error));
}

TEST_CASE("bytes: an enum that is read has a value of its own, or nothing was read") {
    enum class Kind : uint16_t { first = 3, middle, last };
    const auto read = [](uint16_t value) {
        const Bytes bytes = ByteWriter().put(value).put(uint8_t{7}).take();
        ByteReader in(bytes);
        const auto kind = in.get_enum(Kind::first, Kind::last);
        in.get<uint8_t>();
        return in.at_end() ? std::optional(kind) : std::nullopt;
    };
    CHECK(read(3) == std::optional(Kind::first));
    CHECK(read(4) == std::optional(Kind::middle));
    CHECK(read(5) == std::optional(Kind::last));
    for (const int other : {0, 2, 6, 0x0103, 0xffff})
        CHECK_FALSE(read(static_cast<uint16_t>(other)));
}

// Values that ranks compare: they must not depend on the machine or the compiler.
TEST_CASE("hash: is FNV-1a of 64 bits") {
    CHECK(hash_of("") == 0xcbf29ce484222325);
    CHECK(hash_of("a") == 0xaf63dc4c8601ec8c);
    CHECK(hash_of("foobar") == 0x85944171f73967e8);
    CHECK(hash_of("\xff") == mix_hash(hash_basis, 0xff));
}

TEST_CASE("result: an error that was told is a failure, of a rank that there is or nobody") {
    const auto expect = [](Error told, Code code, Rank rank) {
        REQUIRE(told.code == code);
        REQUIRE(told.rank == rank);
        REQUIRE(told.message == "why");
    };
    expect(told_error(Code::timeout, 3, 4, "why"), Code::timeout, 3);
    expect(told_error(Code::revoked, nobody, 4, "why"), Code::revoked, nobody);
    expect(told_error(static_cast<Code>(static_cast<int>(last_code) + 1), 0, 4, "why"),
           Code::system, 0);
    expect(told_error(Code::ok, 4, 4, "why"), Code::system, nobody);
    expect(told_error(Code::in_progress, -7, 4, "why"), Code::system, nobody);
    expect(told_error(static_cast<Code>(200), 0, 4, "why"), Code::system, 0);
}

TEST_CASE("bytes: what a writer wrote a reader reads, and nothing past its end") {
    const Bytes bytes = ByteWriter().put(uint32_t{7}).put_text("hello").put(int64_t{-1}).take();
    ByteReader in(bytes);
    REQUIRE(in.get<uint32_t>() == 7);
    REQUIRE(in.get_text(100) == "hello");
    REQUIRE(in.get<int64_t>() == -1);
    REQUIRE(in.at_end());
    REQUIRE(in.get<uint8_t>() == 0);
    REQUIRE_FALSE(in.ok());

    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        ByteReader part(ByteView(bytes).first(cut));
        part.get<uint32_t>();
        part.get_text(100);
        part.get<int64_t>();
        REQUIRE_FALSE(part.ok());
    }
    ByteReader too_long(bytes);
    too_long.get<uint32_t>();
    REQUIRE(too_long.get_text(4).empty());
    REQUIRE_FALSE(too_long.ok());
}

TEST_CASE("config: tutti's variables win over the launcher's") {
    auto config = config_from_environment(environment({{"RANK", "3"},
                                                       {"WORLD_SIZE", "8"},
                                                       {"MASTER_ADDR", "10.0.0.1"},
                                                       {"MASTER_PORT", "29500"},
                                                       {"TORCHELASTIC_RUN_ID", "abc"}}));
    REQUIRE(config);
    REQUIRE(config->rank == 3);
    REQUIRE(config->size == 8);
    REQUIRE(config->job == "abc");
    REQUIRE(config->store == "tcp://10.0.0.1:29501");
    config = config_from_environment(environment(
        {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"TUTTI_RANK", "1"}, {"TUTTI_STORE", "file:///x"}}));
    REQUIRE(config->rank == 1);
    REQUIRE(config->size == 8);
    REQUIRE(config->store == "file:///x");
}

TEST_CASE("config: every launcher's variables are understood") {
    for (const auto& [rank, size] :
         std::map<std::string, std::string>{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"},
                                            {"SLURM_PROCID", "SLURM_NTASKS"},
                                            {"RANK", "WORLD_SIZE"}}) {
        INFO(rank);
        const auto config = config_from_environment(environment({{rank, "2"}, {size, "5"}}));
        REQUIRE(config);
        REQUIRE(config->rank == 2);
        REQUIRE(config->size == 5);
    }
    const auto indexed =
        config_from_environment(environment({{"JOB_COMPLETION_INDEX", "4"}, {"TUTTI_SIZE", "6"}}));
    REQUIRE(indexed->rank == 4);
    REQUIRE(indexed->size == 6);
}

TEST_CASE("config: of launchers inside each other the innermost one counts") {
    // Outermost first: each row is started by the one before.
    constexpr std::array<const char*, 3> nested[] = {
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"},
        {"PMI_RANK", "PMI_SIZE", "PMI_JOBID"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid"},
        {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"}};
    std::map<std::string, std::string> variables{{"JOB_COMPLETION_INDEX", "5"}};
    for (Rank level = 0; level < 4; ++level) {
        const auto [rank, size, job] = nested[level];
        INFO(rank);
        variables[rank] = std::to_string(level);
        variables[size] = std::to_string(level + 1);
        variables[job] = rank;
        const auto config = config_from_environment(environment(variables));
        REQUIRE(config);
        REQUIRE(config->rank == level);
        REQUIRE(config->size == level + 1);
        REQUIRE(config->job == rank);
    }
}

TEST_CASE("config: Slurm counts how often it has started a job anew") {
    const auto config = config_from_environment(
        environment({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "5"}, {"SLURM_RESTART_COUNT", "3"}}));
    REQUIRE(config);
    REQUIRE(config->attempt == 3);
}

TEST_CASE("config: a rank without a size is torchrun's only where nobody says both") {
    std::map<std::string, std::string> variables{{"RANK", "3"}};
    const auto alone = config_from_environment(environment(variables));
    REQUIRE(alone);
    REQUIRE(alone->rank == 3);
    variables.insert({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}});
    const auto inside = config_from_environment(environment(variables));
    REQUIRE(inside);
    REQUIRE(inside->rank == 1);
    REQUIRE(inside->size == 4);
}

TEST_CASE("config: of two secrets in the environment the one that is no file counts") {
    const std::string said = "said, and long enough", filed = "in a file, and long enough";
    const std::string path = fmt::format("/tmp/tutti-base-test-secret-{}", ::getpid());
    std::ofstream(path) << filed << "\n";
    const auto secret_of = [&](std::map<std::string, std::string> variables) {
        const auto config = config_from_environment(environment(std::move(variables)));
        return config ? config->secret : config.error().message;
    };
    CHECK(secret_of({{"TUTTI_SECRET_FILE", path}}) == filed);
    CHECK(secret_of({{"TUTTI_SECRET_FILE", path}, {"TUTTI_SECRET", said}}) == said);
    CHECK(secret_of({{"TUTTI_SECRET_FILE", "/none"}, {"TUTTI_SECRET", said}}) == said);
    CHECK(secret_of({{"TUTTI_SECRET_FILE", path}, {"TUTTI_SECRET", ""}}) == filed);
    auto config = config_from_environment(environment({{"TUTTI_SECRET", said}}));
    REQUIRE(config);
    REQUIRE(set_config(*config, "secret_file", path));  // the program's goes before both
    CHECK(config->secret == filed);
    ::unlink(path.c_str());
}

TEST_CASE("config: a secret that can be guessed is refused, with a way to make a better one") {
    const std::string path = fmt::format("/tmp/tutti-base-test-short-{}", ::getpid());
    std::ofstream(path) << "fifteen letters\n";
    for (const auto& [variable, value] :
         {std::pair<std::string, std::string>{"TUTTI_SECRET", "fifteen letters"},
          {"TUTTI_SECRET_FILE", path}}) {
        const auto config = config_from_environment(environment({{variable, value}}));
        REQUIRE_FALSE(config);
        CHECK(config.error().code == Code::invalid);
        CHECK(config.error().message.find(variable) != std::string::npos);
        CHECK(config.error().message.find("has 15 bytes") != std::string::npos);
        CHECK(config.error().advice.find("openssl rand -hex 32") != std::string::npos);
    }
    ::unlink(path.c_str());
    Config config;
    CHECK(set_config(config, "secret", "sixteen letters."));
    CHECK(set_config(config, "secret", ""));
}

TEST_CASE("config: what is wrong and does not place the rank is kept, for the others to hear") {
    const auto config = config_from_environment(
        environment({{"TUTTI_NRINGS", "99"}, {"TUTTI_CHECK", "maybe"}, {"TUTTI_RANK", "3"}}));
    REQUIRE(config);
    CHECK(config->rank == 3);
    REQUIRE(config->refused);
    CHECK(config->refused->code == Code::invalid);
    CHECK(config->refused->message.find("TUTTI_NRINGS: setting 'nrings'") != std::string::npos);
    for (const char* placing : {"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_STORE_HOSTED"})
        CHECK_FALSE(config_from_environment(environment({{placing, "x"}})));
}

TEST_CASE("config: how often torchrun has restarted its ranks is known") {
    std::map<std::string, std::string> variables = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "run"}};
    CHECK(config_from_environment(environment(variables))->attempt == 0);
    variables["TORCHELASTIC_RESTART_COUNT"] = "2";
    const auto config = config_from_environment(environment(variables));
    REQUIRE(config);
    CHECK(config->attempt == 2);
    CHECK(config->job == "run");
    variables["TORCHELASTIC_RESTART_COUNT"] = "two";
    CHECK_FALSE(config_from_environment(environment(variables)));
}

TEST_CASE("blame: no shortage of this process is a peer's fault, nor is what is not known") {
    for (const int shortage : {ENOMEM, ENOBUFS, EMFILE, ENFILE, ETOOMANYREFS})
        CHECK(classify_errno(shortage) == ErrnoClass::shortage);
    for (const int gone : {EPIPE, ECONNRESET, ECONNREFUSED, ECONNABORTED, ETIMEDOUT, EHOSTUNREACH,
                           ENETUNREACH, ENETDOWN, ENOTCONN})
        CHECK(classify_errno(gone) == ErrnoClass::peer);
    for (const int again : {EAGAIN, EINTR}) CHECK(classify_errno(again) == ErrnoClass::again);
    for (const int own : {0, EBADF, EINVAL, EACCES, ENOSPC, 12345})
        CHECK(classify_errno(own) == ErrnoClass::own);
}

TEST_CASE("config: a value that makes no sense names its variable and what is expected") {
    const auto bad = config_from_environment(environment({{"SLURM_PROCID", "two"}}));
    REQUIRE_FALSE(bad);
    REQUIRE(bad.error().message.find(
                "SLURM_PROCID: setting 'rank' (0 … size-1): 'two' is not a whole number") !=
            std::string::npos);
    CHECK(bad.error().advice == "give a whole number from 0 to 2147483646");
    Config config;
    REQUIRE_FALSE(set_config(config, "transport", ""));
    REQUIRE_FALSE(set_config(config, "transport", "shm,,tcp"));
    REQUIRE(set_config(config, "transport", "tcp"));
    REQUIRE(config.transports == std::vector<std::string>{"tcp"});
    for (const ConfigKey& key : config_keys()) REQUIRE_FALSE(key.meaning.empty());
}

TEST_CASE("config: half of what places a process in a job is refused, naming what is missing") {
    struct Half {
        std::map<std::string, std::string> variables;
        const char *said, *missing;
    };
    for (const auto& [variables, said, missing] : {
             Half{{{"TUTTI_RANK", "0"}}, "TUTTI_RANK says that this is rank 0", "set TUTTI_SIZE"},
             Half{{{"RANK", "1"}}, "RANK says that this is rank 1", "set TUTTI_SIZE"},
             Half{{{"JOB_COMPLETION_INDEX", "0"}}, "JOB_COMPLETION_INDEX", "set TUTTI_SIZE"},
             Half{{{"TUTTI_SIZE", "4"}}, "TUTTI_SIZE says that there are 4 ranks", "0 to 3"},
             Half{{{"TUTTI_STORE", "file:///x"}}, "TUTTI_STORE", "TUTTI_RANK and TUTTI_SIZE"},
         }) {
        INFO(said);
        auto config = config_from_environment(environment(variables));
        REQUIRE(config);
        const auto whole = check_whole(*config);
        REQUIRE_FALSE(whole);
        CHECK(whole.error().code == Code::invalid);
        CHECK(whole.error().message.find(said) != std::string::npos);
        CHECK(whole.error().advice.find(missing) != std::string::npos);
        // The program may say the rest.
        REQUIRE(set_config(*config, "rank", "0"));
        REQUIRE(set_config(*config, "size", "1"));
        CHECK(check_whole(*config));
    }
    for (const std::map<std::string, std::string>& variables :
         {std::map<std::string, std::string>{},
          {{"TUTTI_SIZE", "1"}},
          {{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "1"}},
          {{"TUTTI_RANK", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}},
          {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}},
          {{"TUTTI_STORE", ""}}}) {
        const auto config = config_from_environment(environment(variables));
        REQUIRE(config);
        CHECK(check_whole(*config));
    }
    CHECK(check_whole(Config{.rank = 1, .size = 2}));  // made by hand
}

TEST_CASE("config: variables that are nearly settings are named, and a program's own are not") {
    const auto told = [](const char* entry) {
        const std::array<const char*, 2> environment{entry, nullptr};
        const auto found = misspelt_variables(environment.data());
        REQUIRE(found.size() <= 1);
        return found.empty() ? "" : error_text(found[0]);
    };
    for (const auto& [written, meant] :
         std::map<std::string, std::string>{{"TUTTI_TRANSPROT", "TUTTI_TRANSPORT"},
                                            {"TUTTI_TRANSPORTS", "TUTTI_TRANSPORT"},
                                            {"TUTTI_RNAK", "TUTTI_RANK"},
                                            {"TUTTI_TIMEOUT", "TUTTI_TIMEOUT_MS"},
                                            {"TUTTI_TIMEOUT_S", "TUTTI_TIMEOUT_MS"},
                                            {"TUTTI_ALGORITHM", "TUTTI_ALGO"},
                                            {"TUTTI_SECRETFILE", "TUTTI_SECRET_FILE"},
                                            {"TUTTI_TRAINER_THREAD", "TUTTI_TRAINER_THREADS"}}) {
        CHECK(told((written + "=1").c_str()) ==
              fmt::format("{} is set but has no effect: tutti has no such variable. What to do: "
                          "set {} instead, or unset {}",
                          written, meant, written));
    }
    for (const ConfigKey& key : config_keys())
        CHECK(told((variable_of(key.name) + "=1").c_str()) == "");
    const std::string endless = "TUTTI_" + std::string(1000, 'X') + "=1";
    for (const std::string& own :
         std::vector<std::string>{"TUTTI_CACHE_DIR=/x", "TUTTI_RUN=/bin/tutti-run", "TUTTI_BENCH=x",
                                  "TUTTI_SOURCE_ROOT=/", "TUTTI_TEST_TRANSPORTS=shm",
                                  "TUTTI_CHECKPOINT=x", "TUTTI_STATE=x", "TUTTI_=x", "TUTTI=x",
                                  "RNAK=1", "TUTTI_NAME", "TUTTI_WORKER_RANK=3", endless})
        CHECK(told(own.c_str()) == "");
    CHECK(misspelt_variables(nullptr).empty());
}

TEST_CASE("clock: deadlines pass, and those without a time never do") {
    REQUIRE_FALSE(Deadline::after_ms(60'000).passed());
    REQUIRE(Deadline::after_ms(0).never());
    REQUIRE_FALSE(Deadline().passed());
    REQUIRE(Deadline().left_ms(50) == 50);
    const Deadline soon = Deadline::after_ms(1);
    while (!soon.passed()) cpu_relax();
    REQUIRE(soon.left_ms(50) == 0);
    const TickScale scale;
    const uint64_t stamp = ticks();
    const int64_t before = now_ns();
    while (now_ns() < before + 2'000'000) cpu_relax();
    REQUIRE(std::abs(scale.to_ns(stamp) - before) < 100'000'000);
}

TEST_CASE("process: fields of its state, and 0 of one that is not there") {
    REQUIRE(process_field(0, ProcessField::parent) == static_cast<uint64_t>(::getppid()));
    REQUIRE(process_field(::getpid(), ProcessField::start_ticks) ==
            process_field(0, ProcessField::start_ticks));
    REQUIRE(process_field(0, ProcessField::start_ticks) > 0);
    REQUIRE(process_field(0, ProcessField::heap_begin) <=
            reinterpret_cast<std::uintptr_t>(::sbrk(0)));
    REQUIRE(process_field(INT32_MAX, ProcessField::parent) == 0);
}

TEST_CASE("process: has ended when it is gone, or when only its parent has yet to hear of it") {
    CHECK_FALSE(process_ended(::getpid()));
    CHECK(process_ended(INT32_MAX));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
    CHECK(process_ended(child));
    ::waitpid(child, nullptr, 0);
}

TEST_CASE(
    "small file: is read whole, also from a pipe; what cannot be, or never ends, is an error") {
    const std::string path = fmt::format("/tmp/tutti-base-test-{}", ::getpid());
    std::ofstream(path) << "0123456789";
    CHECK(read_small_file(path, 10).value() == "0123456789");
    const auto error_of = [](const std::string& file) {
        const auto text = read_small_file(file, 9);
        REQUIRE(!text);
        CHECK(text.error().code == Code::invalid);
        CHECK(text.error().message.find("'" + file + "'") != std::string::npos);
        return text.error().message;
    };
    CHECK(error_of(path).find("longer than 9 bytes") != std::string::npos);
    CHECK(error_of("/").find("Is a directory") != std::string::npos);
    CHECK(error_of("/dev/zero").find("longer than 9 bytes") != std::string::npos);
    CHECK(error_of("/nowhere/at/all").find("No such file") != std::string::npos);
    ::unlink(path.c_str());
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "piped", 5) == 5);
    ::close(ends[1]);
    CHECK(read_small_file(fmt::format("/dev/fd/{}", ends[0]), 10).value() == "piped");
    ::close(ends[0]);
    Config config;
    for (const char* endless : {"/dev/zero", "/"})
        CHECK(!set_config(config, "secret_file", endless));
}

TEST_CASE("id set: knows its numbers, and keeps runs of them as one range") {
    IdSet ids;
    for (const uint32_t id : {5U, 3U, 4U, 9U, 4U, 0U, 10U, 8U}) ids.insert(id);
    for (uint32_t id = 0; id < 12; ++id)
        REQUIRE(ids.contains(id) == (id == 0 || (id >= 3 && id <= 5) || (id >= 8 && id <= 10)));
    REQUIRE(ids.ranges() == 3);
    for (uint32_t id = 1000; id > 0; --id) ids.insert(id);
    REQUIRE(ids.ranges() == 1);
    ids.insert(~0U);
    REQUIRE(ids.contains(~0U));
    REQUIRE_FALSE(ids.contains(1001));
}
