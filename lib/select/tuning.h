// A tuning file: constants and choices that tutti-tune measured, or someone wrote by hand.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.h"
#include "base/result.h"
#include "select/cost.h"

namespace tutti {

/// "choose allreduce shm ranks=2..4 bytes=0..64K sums=2 ring"
struct TuningRule {
    Collective collective = Collective::allreduce;
    std::string wire;
    Rank least_ranks = 1, most_ranks = 1;
    std::size_t least_bytes = 0, most_bytes = 0;
    uint32_t widening = 0;  // for such sums alone (Reducer::widening); 0: for any
    std::string algorithm;
    std::size_t line = 0;
};

/// The lines of a tuning file that apply to this machine. Selection takes the first rule that
/// matches the call and names an algorithm that can serve it.
struct Tuning {
    std::string file;
    std::string machine;  // ours, where lines are for such machines only
    std::vector<TuningRule> rules;
    std::vector<std::pair<std::string, Constants>> constants;  // by wire

    const Constants* constants_of(std::string_view wire) const;
    /// Equal on ranks that would choose alike; also says what there is, for people.
    std::string fingerprint() const;
};

/// This machine's name in tuning files: its cores and their model. Lines after "machine NAME" apply
/// to such machines only, until the next such line; "machine *" is any.
std::string machine_name();

/// invalid: file, line, what is wrong and what would be right.
Result<Tuning> parse_tuning(std::string_view text, std::string_view file, std::string_view machine);
/// "" gives an empty one.
Result<Tuning> load_tuning(const std::string& file);

}  // namespace tutti
