// A model on all local devices: what the builders declared, where it lies, and how it runs.
#pragma once

#include <deque>
#include <memory>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/execution/executors.h"
#include "trainer/execution/gradient_stream.h"
#include "trainer/model/settings.h"
#include "trainer/plan/layout.h"
#include "trainer/sync/averaging.h"
#include "trainer/sync/micro_sums.h"
#include "trainer/sync/sparse.h"

namespace tutti::trainer {
inline constexpr const char* iteration_name = "iteration";
}

struct tutti_trainer {
    template <typename T = void>
    using Result = tutti::trainer::Result<T>;

public:
    /// Either all ranks have one or none has.
    static Result<std::unique_ptr<tutti_trainer>> build(const tutti_parallelize_spec& spec);

    Result<> sync();
    Result<int64_t> step(const int64_t* samples);
    Result<> epoch_barrier();
    Result<> begin();
    Result<> grad_ready(int device, const std::string& parameter);
    Result<> finish();

    const tutti::trainer::Recorder& recorder() const { return recorder_; }
    tutti::trainer::Device& device(int index) { return *devices_[static_cast<std::size_t>(index)]; }
    int devices() const { return static_cast<int>(devices_.size()); }
    bool trains() const { return trains_; }
    Result<const tutti::trainer::Buffer*> find(int device, const std::string& name) const;
    Result<> read(int device, const std::string& name, void* host, std::size_t bytes);
    Result<> write(int device, const std::string& name, const void* host, std::size_t bytes);
    /// Of a model's state, with how many characters of its name are the scope's.
    struct Param {
        const tutti::trainer::Buffer* buffer;
        std::size_t prefix;
    };
    Result<std::vector<Param>> params(const std::string& scope) const;
    Result<> add_to(tutti::trainer::checkpoint::Entries& entries) const;
    Result<> save(const std::string& path);
    Result<> load(const std::string& path, const tutti_checkpoint_opts* opts);
    Result<> sparse_pull(const std::string& parameter, int64_t total_rows, const int64_t* rows,
                         std::size_t count, void* values);
    void count(tutti_trainer_counters& counters) const;
    Result<uint64_t> reduced_bytes(const std::string& parameter) const;

private:
    using Group = tutti::trainer::Group;
    using Program = tutti::trainer::Program;
    using Task = tutti::trainer::Task;

    // build.cpp: what the builders declare
    tutti_trainer(tutti::trainer::Settings settings, std::vector<tutti::trainer::Device*> devices,
                  tutti::trainer::Comm comm, bool trains);
    Result<> declare(const tutti_parallelize_spec& spec);
    Result<> fit_settings();
    Result<> run_builder(tutti::trainer::Phase phase, int device,
                         const tutti_parallelize_spec& spec);
    static Result<> agree(const tutti::trainer::Comm& comm, int devices, const Result<>& own);
    Result<> check_ranks_alike();
    Result<> keep_iteration();
    // params.cpp: the model's state and its checkpoint
    Result<> number_rows();
    // assemble.cpp: programs and memory
    Result<> assemble();
    Result<Program> compute_program();
    void insert_buckets(Program& program, std::size_t backward_begin);
    void append_fixed_sums(Program& program, bool last);
    Result<> append_sparse_sums(Program& program);
    void append_computed_sync(Program& program);
    Result<> append_update(Program& program);
    bool adds_up(int gradient) const;
    bool begins_at_zero(int buffer) const;
    void mark_zeroes(Program& program) const;
    Result<> place_all();
    Result<> place_rest();
    Result<> adopt_parameters();
    Result<> bind_tasks();
    void bind_sums(int task, const Group& bucket);
    int add_task(Task task);
    void joined(tutti::trainer::Node& node, const std::vector<tutti::trainer::Item>& parts);
    int bucket_task(const Group& bucket);

    bool synchronous() const { return settings_.local_steps == 0; }
    int replicas() const { return devices() * comm_.size(); }
    double scale() const;
    Result<> need_working(const char* call) const;
    /// With several ranks a failure ends the trainer.
    Result<> ended_by(Result<> failure);
    Result<> load_iteration(const std::string& counter);
    Result<> store_iteration();
    Result<> run_micro_batches(tutti::trainer::RunContext& context);
    /// Of all replicas; and whose computed parameters are the newest: the first that has samples.
    Result<int64_t> count_samples(const int64_t* samples);
    std::vector<Group*> kept_groups();

    tutti::trainer::Settings settings_;
    std::vector<tutti::trainer::Device*> devices_;
    tutti::trainer::Comm comm_;
    tutti::trainer::Recorder recorder_;
    bool trains_;
    tutti::trainer::Collectives collectives_;
    std::deque<Task> tasks_;
    struct Binding {  // a task's buffers, by device, known once memory is placed
        int task;
        std::vector<int> in, out;
    };
    std::vector<Binding> bindings_;
    std::deque<Group> parameters_, computed_, state_, buckets_;
    std::vector<tutti::trainer::DeviceMemory> rest_;  // by device
    std::vector<int> bucket_tasks_;
    struct GroupTask {
        Group* group;
        int task;
    };
    std::vector<GroupTask> group_tasks_;  // tasks on whole groups
    std::vector<int> sync_tasks_;
    std::unique_ptr<tutti::trainer::Averaging> averaging_;
    std::unique_ptr<tutti::trainer::MicroSums> micro_sums_;
    std::size_t backward_begin_ = 0;
    Program micro_, last_;
    tutti::trainer::Engine engine_;
    std::unique_ptr<tutti::trainer::Executor> executor_;
    std::unique_ptr<tutti::trainer::GradientStream> stream_;
    int next_stream_ = 0;
    int64_t iteration_ = 0;
    int64_t steps_ = 0;
    bool synced_ = false;
    std::string half_loaded_;  // why the parameters are of no use until they are loaded again
    std::string broken_;       // why nothing works any more
};
