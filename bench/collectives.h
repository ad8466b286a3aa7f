// The collectives as data: one row describes one collective. The command line, the calls, the
// checks and the report read these rows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tutti/tutti.h"

namespace bench {

struct Collective;

struct Call {
    const Collective* collective = nullptr;
    std::size_t count = 0;  // of one block, if a buffer holds one for each rank
    tutti_dtype dtype = TUTTI_FLOAT32;
    tutti_op op = TUTTI_SUM;
    int root = 0;
    std::string algorithm;  // "": the library chooses
};

/// One operation's memory.
struct Buffers {
    const void* in = nullptr;
    void* out = nullptr;
};

/// A rank's place in the communicator.
struct Seat {
    int rank = 0;
    int ranks = 1;
};

enum class Who { nobody, root, everyone, all_but_first };
/// The input or the output of a collective: the ranks that have it, and whether it is a row of
/// blocks, one for each rank.
struct Side {
    Who who = Who::nobody;
    bool row = false;
};

/// The ranks whose inputs an output combines.
enum class Combines { nothing, all, up_to_own, before_own };

struct Functions {
    tutti_status (*run)(tutti_comm*, const Call&, Buffers);
    tutti_status (*start)(tutti_comm*, const Call&, Buffers, const tutti_call_opts*,
                          tutti_request**);
    tutti_status (*plan)(tutti_comm*, const Call&, const tutti_call_opts*, tutti_plan**);
};

struct Collective {
    const char* name;
    Side in;
    Side out;
    Combines combines;
    /// The factor busbw / algbw, as nccl-tests defines it: the bytes that the busiest link carries
    /// for each byte of the operation. It makes different rank counts comparable.
    double (*busbw)(double ranks);
    Functions functions;
    bool always_in_place = false;

    bool moves_data() const { return out.who != Who::nobody; }
    bool reduces() const { return combines != Combines::nothing; }
    bool rooted() const { return in.who == Who::root || out.who == Who::root; }
    bool is_prefix() const {
        return combines == Combines::up_to_own || combines == Combines::before_own;
    }
    /// Whether some ranks wait for no other rank: data flows from a root, to a root or along a
    /// prefix.
    bool one_way() const { return rooted() || is_prefix(); }
};

std::span<const Collective> collectives();
/// Returns nullptr if no collective has that name.
const Collective* find_collective(std::string_view name);

bool has(Side side, const Call& call, Seat seat);
std::size_t elements_of(Side side, const Call& call, int ranks);
/// The number in the size column: the bytes of the input or of the output, whichever is larger.
std::size_t bytes_of(const Call& call, int ranks);

}  // namespace bench
