// A tuning file: constants and choices that tutti-tune measured, or a person wrote by hand.
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
    uint32_t widening = 0;  // only for sums of this width (Reducer::widening); 0: for any
    std::string algorithm;
    std::size_t line = 0;
};

/// The lines of a tuning file that apply to this machine. Selection takes the first rule that
/// matches the call and names an algorithm that can serve it.
struct Tuning {
    std::string file;
    std::string machine;  // this machine's name, if the file has lines only for such machines
    std::vector<TuningRule> rules;
    std::vector<std::pair<std::string, Constants>> constants;  // by wire

    const Constants* constants_of(std::string_view wire) const;
    /// Equal on ranks that would choose alike; also describes the contents, for people.
    std::string fingerprint() const;
};

/// This machine's name in tuning files: its cores and their model. Lines after "machine NAME" apply
/// only to such machines, until the next such line; "machine *" means any.
std::string machine_name();

/// invalid: the error has the file, the line, the mistake and a correct example.
Result<Tuning> parse_tuning(std::string_view text, std::string_view file, std::string_view machine);
/// "": an empty one.
Result<Tuning> load_tuning(const std::string& file);

}  // namespace tutti
