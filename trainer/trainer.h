// A model on all local devices: the parts that declare it, hold it and run it, put together.
#pragma once

#include <memory>
#include <optional>

#include "trainer/execution/steps.h"
#include "trainer/model_state.h"
#include "trainer/sync/state_broadcast.h"

/// Owns the parts. Each part refers only to members before it. The C API calls a part directly if
/// one is enough; the member functions are for calls that involve several.
struct tutti_trainer {
    template <typename T = void>
    using Result = tutti::trainer::Result<T>;

public:
    /// Either all ranks have one or none has.
    static Result<std::unique_ptr<tutti_trainer>> build(const tutti_parallelize_spec& spec);

    const tutti::trainer::ModelRecorder& recorder() const { return recorder_; }
    const tutti::trainer::ModelState& state() const { return state_; }
    tutti::trainer::Steps& steps() { return steps_; }

    /// Broadcasts the state of replica 0.
    Result<> sync();
    Result<> epoch_barrier();
    /// Writes a buffer; one that counts steps sets the iteration, too.
    Result<> write(int device, const std::string& name, const void* host, std::size_t bytes);
    Result<> save(const std::string& path);
    Result<> load(const std::string& path, const tutti_checkpoint_opts* opts);
    Result<> sparse_pull(const std::string& parameter, int64_t total_rows, const int64_t* rows,
                         std::size_t count, void* values) const;
    /// Collective: what the trainer does after a loss.
    Result<> set_recovery(const tutti_trainer_recovery& options);
    /// Collective, between two steps, after a loss in a collective of the program's.
    Result<> recover();
    /// Collective, between two steps: new processes join the ranks.
    Result<> admit(int newcomers);
    /// The present ranks' communicator; NULL once this rank has left them.
    tutti_comm* comm() const { return replicas_.comm.get(); }
    const tutti::trainer::LossRecovery* recovery() const { return steps_.recovery(); }
    void count(tutti_trainer_counters& counters) const;
    Result<uint64_t> reduced_bytes(const std::string& parameter) const;

private:
    tutti_trainer(const tutti::trainer::TrainerSettings& settings,
                  tutti::trainer::Replicas replicas, bool trains);
    /// From declarations to programs, memory and tasks.
    Result<> assemble();
    void form_groups();
    Result<tutti::trainer::StepPlan> make_programs();
    Result<> sync_once();
    /// With recovery: fails on every rank if it fails on one.
    Result<> sync_together();
    static Result<> agree_on_recovery(const tutti::trainer::Comm& ranks, bool recovers);
    Result<> check_admits() const;
    Result<tutti::trainer::Comm> grown_comm(int newcomers);
    Result<> refuse(const Result<tutti::trainer::Comm>& larger);
    std::string model_signature() const;
    Result<> load_once(const std::string& path, const tutti_checkpoint_opts* opts);
    /// After a loss in a call between two steps: goes on with the ranks left, and returns
    /// PEER_LOST.
    Result<> recover_after(Result<> outcome);
    Result<> place_and_bind(const tutti::trainer::StepPlan& plan);

    const tutti::trainer::TrainerSettings settings_;
    tutti::trainer::Replicas replicas_;  // of the present ranks
    tutti::trainer::ModelRecorder recorder_;
    tutti::trainer::ModelMemory memory_;
    tutti::trainer::TaskTable tasks_;
    tutti::trainer::Collectives collectives_;
    tutti::trainer::StateBroadcast broadcast_;
    std::optional<tutti::trainer::StepSync> step_sync_;  // of a model that trains
    tutti::trainer::Engine engine_;
    tutti::trainer::Readiness readiness_;
    tutti::trainer::Steps steps_;
    tutti::trainer::ModelState state_;
};
