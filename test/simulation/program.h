// The program of one rank: it makes the scenario's calls, reacts to their errors, and checks their
// results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "control/agreement/shrinking.h"
#include "run/request.h"
#include "simulation/comm.h"
#include "simulation/scenario.h"

namespace simulation {

class SimRank;
class World;

/// One call at a time; turn() looks whether it has ended. The steps of a shrink are those of
/// Recovery (lib/comm).
class Program {
public:
    Program(SimRank& rank, SimComm& whole);
    ~Program();

    void turn();
    /// Now and then, on the program's thread.
    void check_clocks();

private:
    enum class Doing : uint8_t { nothing, pausing, entering, collective, agree, shrink, making };
    void next();
    void begin(const Step& step);
    void begin_collective(const Step& step);
    void begin_mismatch(const Step& step);
    void begin_abort(int64_t longest_ns);
    void abort(SimComm& comm);
    void interrupt();
    bool after_mismatching_call(Code code);
    void collective_failed(const Error& error);
    void enter();
    void begin_agree();
    void begin_shrink(const std::vector<Rank>& leavers);
    void begin_call(Doing doing);
    void end_call();
    void collective_ended();
    void agreement_ended();
    void take(Shrinking::Action action);
    void make(const SmallerGroup& group);
    void made();
    void shrunk(Shrinking::Action& action);
    void failed(const Error& error);
    void recover();
    void pause_then(int64_t longest_ns);
    void finish();
    void finish_early();
    void check_result() const;
    uint32_t input(Rank member, Rank to, std::size_t i) const;

    SimRank& rank_;
    World& world_;
    SimComm* comm_;
    std::size_t generation_ = 0, step_ = 0;
    Doing doing_ = Doing::nothing;
    int64_t began_ns_ = 0;
    int64_t ask_ns_ = 0;  // while it waits for other ranks after a mismatch: the next question

    // The present collective.
    Step collective_;
    Rank root_ = 0;
    std::unique_ptr<Request> request_;
    Plan* plan_ = nullptr;
    std::vector<uint32_t> in_, out_;
    enum class Mismatching : uint8_t { no, first_call, second_call };
    Mismatching mismatching_ = Mismatching::no;
    bool is_odd_ = false;  // this rank makes another call than the others

    // The present agreement or shrink.
    uint64_t call_ = 0;
    bool interrupted_ = false;  // by an abort of this rank's second thread
    std::optional<Shrinking> shrinking_;
    SimComm* part_ = nullptr;
    Shrinking::OwnPart own_part_;
    SmallerGroup group_;

    // Reaction to errors.
    int attempts_ = 0;
    bool agreed_ = false, recovering_ = false;
    Rank late_ = nobody;
};

}  // namespace simulation
