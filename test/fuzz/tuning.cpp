// A tuning file, which people write by hand.
#include "fuzz/catalog.h"
#include "select/tuning.h"

namespace tutti::fuzz {

void run_tuning(ByteView input) {
    const auto parsed = parse_tuning(as_text(input), "file", "this machine");
    if (!parsed) return require(parsed.error().code != Code::ok, "an error that is none");
    for (const TuningRule& rule : parsed->rules)
        require(rule.least_ranks <= rule.most_ranks && rule.least_bytes <= rule.most_bytes,
                "a rule for nothing");
    require(!parsed->fingerprint().empty(), "no fingerprint");
}

std::vector<Bytes> seeds_tuning() {
    const std::vector<Bytes> seeds = {
        to_bytes("# by hand\n"
                 "machine this machine\n"
                 "constants shm hop_us=0.1 message_us=0.05\n"
                 "choose allreduce shm ranks=2..4 bytes=0..64K sums=2 ring\n"),
        to_bytes("machine *\r\nchoose broadcast tcp ranks=2..* bytes=1M binomial\n"),
        to_bytes("machine another\nchoose allreduce shm ranks=4 bytes=2G..* flat\n"),
    };
    for (const Bytes& seed : seeds)
        require(parse_tuning(as_text(seed), "seed", "this machine").has_value(), "a seed is wrong");
    return seeds;
}

}  // namespace tutti::fuzz
