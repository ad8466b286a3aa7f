#include "trainer/model/settings.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tutti::trainer {
namespace {

constexpr std::size_t default_bucket_bytes = std::size_t{25} << 20;
constexpr std::size_t default_first_bucket_bytes = std::size_t{1} << 20;
constexpr int default_max_in_flight = 4;
constexpr int most_threads = 1024;

std::string_view variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

Result<bool> dag_wanted(tutti_execution option) {
    const std::string_view value = variable("TUTTI_EXECUTION");
    if (!value.empty() && value != "serial" && value != "dag")
        return invalid("unknown TUTTI_EXECUTION '{}'", value)
            .advice("set TUTTI_EXECUTION to serial or dag, or unset it");
    if (value.empty()) return option == TUTTI_EXECUTION_DAG;
    return value == "dag";
}

// 0: neither option nor variable is set.
Result<int> threads_wanted(int option) {
    if (option < 0 || option > most_threads)
        return invalid("options.threads is {}, out of range", option)
            .advice("set options.threads to 0 (default) to {}", most_threads);
    if (option > 0) return option;
    const std::string_view value = variable("TUTTI_TRAINER_THREADS");
    if (value.empty()) return 0;
    int threads = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), threads);
    if (error != std::errc() || end != value.data() + value.size() || threads < 1 ||
        threads > most_threads)
        return invalid("TUTTI_TRAINER_THREADS is '{}', not a number from 1 to {}", value,
                       most_threads)
            .advice("set TUTTI_TRAINER_THREADS to 1 to {}, or unset it", most_threads);
    return threads;
}

Result<int> at_least(const char* name, int value, int least) {
    if (value < least)
        return invalid("options.{} is {}, less than {}", name, value, least)
            .advice("set options.{} to {} or more", name, least);
    return value;
}

// Options that exclude each other.
Result<> check_together(const TrainerSettings& s) {
    if (s.uneven && s.scale_learning_rate)
        return invalid(
                   "options.uneven and options.scale = TUTTI_SCALE_LEARNING_RATE exclude each "
                   "other: uneven weights the loss of each replica")
            .advice("set options.scale to TUTTI_SCALE_LOSS, or options.uneven to 0");
    if (s.uneven && s.local_steps > 0)
        return invalid(
                   "options.uneven and options.local_steps exclude each other: LocalSGD averages "
                   "replicas, not samples")
            .advice("set options.uneven or options.local_steps to 0");
    if (s.external && (s.micro_batches > 1 || s.uneven || s.parameters_of))
        return invalid(
                   "options.external_autograd excludes options.micro_batches, options.uneven and "
                   "options.parameters_of")
            .advice("set micro_batches to 1, uneven to 0 and parameters_of to NULL");
    return {};
}

}  // namespace

Result<TrainerSettings> settings_of(const tutti_trainer_options* given) {
    tutti_trainer_options o = TUTTI_TRAINER_OPTIONS_INIT;
    if (given) {
        if (given->struct_size != sizeof(o))
            return invalid("options.struct_size is {}, not {}", given->struct_size, sizeof(o))
                .advice("initialise the options with TUTTI_TRAINER_OPTIONS_INIT");
        o = *given;
    }
    TrainerSettings s;
    s.check = o.check_declarations || variable("TUTTI_TRAINER_CHECK") == "1";
    TRAINER_ASSIGN(const bool dag, dag_wanted(o.execution));
    s.dag = dag && !s.check;
    TRAINER_ASSIGN(s.threads, threads_wanted(o.threads));
    s.scale_learning_rate = o.scale == TUTTI_SCALE_LEARNING_RATE;
    TRAINER_ASSIGN(s.micro_batches, at_least("micro_batches", o.micro_batches, 1));
    s.uneven = o.uneven != 0;
    s.fixed_order = o.fixed_order != 0;
    s.bucket_bytes = o.bucket_bytes ? o.bucket_bytes : default_bucket_bytes;
    s.first_bucket_bytes = o.first_bucket_bytes
                               ? o.first_bucket_bytes
                               : std::min(default_first_bucket_bytes, s.bucket_bytes);
    TRAINER_ASSIGN(
        s.max_in_flight,
        at_least("max_in_flight", o.max_in_flight ? o.max_in_flight : default_max_in_flight, 1));
    TRAINER_ASSIGN(s.rings, at_least("rings", o.rings, 0));
    s.computed_mean = o.computed_sync == TUTTI_COMPUTED_MEAN;
    TRAINER_ASSIGN(s.computed_every,
                   at_least("computed_every", o.computed_every ? o.computed_every : 1, 1));
    TRAINER_ASSIGN(s.local_steps, at_least("local_steps", o.local_steps, 0));
    s.share_memory = o.optimize_gradient_memory != 0;
    s.external = o.external_autograd != 0;
    s.parameters_of = o.parameters_of;
    TRAINER_TRY(check_together(s));
    return s;
}

std::string signature(const TrainerSettings& s) {
    const std::pair<const char*, std::size_t> numbers[] = {
        {"micro_batches", s.micro_batches},
        {"uneven", s.uneven},
        {"fixed_order", s.fixed_order},
        {"bucket_bytes", s.bucket_bytes},
        {"first_bucket_bytes", s.first_bucket_bytes},
        {"rings", s.rings},
        {"computed_every", s.computed_every},
        {"local_steps", s.local_steps},
        {"check_declarations (TUTTI_TRAINER_CHECK)", s.check},
        {"external_autograd", s.external}};
    std::string text =
        fmt::format("options.scale {}\noptions.computed_sync {}\noptions.parameters_of {}\n",
                    s.scale_learning_rate ? "learning rate" : "loss",
                    s.computed_mean ? "mean" : "broadcast", s.parameters_of ? "a trainer" : "NULL");
    for (const auto& [name, value] : numbers) text += fmt::format("options.{} {}\n", name, value);
    return text;
}

int default_threads(int devices, bool devices_are_cores, int ranks_of_host) {
    const int wanted = devices + 1;
    cpu_set_t set;
    if (!devices_are_cores || ::sched_getaffinity(0, sizeof set, &set) != 0) return wanted;
    const int usable = CPU_COUNT(&set);
    const bool is_bound = usable < ::sysconf(_SC_NPROCESSORS_ONLN);
    return std::clamp(is_bound ? usable : usable / ranks_of_host, 1, wanted);
}

}  // namespace tutti::trainer
