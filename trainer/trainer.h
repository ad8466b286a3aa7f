// A model on all local devices: what the builders declared, where it lies, and how it runs.
#pragma once

#include <deque>
#include <memory>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/execution/executors.h"
#include "trainer/plan/layout.h"
#include "trainer/settings.h"
#include "trainer/sync/averaging.h"
#include "trainer/sync/gradient_stream.h"
#include "trainer/sync/micro_sums.h"
#include "trainer/sync/sparse.h"

namespace tutti::training {
inline constexpr const char* iteration_name = "iteration";
}

struct tutti_trainer {
public:
    explicit tutti_trainer(const tutti_parallelize_spec& spec);

    void sync();
    int64_t step(const int64_t* samples);
    void epoch_barrier();
    void begin();
    void grad_ready(int device, const std::string& parameter);
    void finish();

    const tutti::training::Recorder& recorder() const { return recorder_; }
    tutti::training::Device& device(int index) {
        return *devices_[static_cast<std::size_t>(index)];
    }
    int devices() const { return static_cast<int>(devices_.size()); }
    bool trains() const { return trains_; }
    const tutti::training::Buffer& find(int device, const std::string& name) const;
    void read(int device, const std::string& name, void* host, std::size_t bytes);
    void write(int device, const std::string& name, const void* host, std::size_t bytes);
    /// Of a model's state, with how many characters of its name are the scope's.
    struct Param {
        const tutti::training::Buffer* buffer;
        std::size_t prefix;
    };
    std::vector<Param> params(const std::string& scope) const;
    void add_to(tutti::trainer::checkpoint::Entries& entries) const;
    void save(const std::string& path);
    void load(const std::string& path, const tutti_checkpoint_opts* opts);
    void sparse_pull(const std::string& parameter, int64_t total_rows, const int64_t* rows,
                     std::size_t count, void* values);
    void count(tutti_trainer_counters& counters) const;
    uint64_t reduced_bytes(const std::string& parameter) const;

private:
    using Group = tutti::training::Group;
    using Program = tutti::training::Program;
    using Task = tutti::training::Task;

    // build.cpp: what the builders declare
    void declare(const tutti_parallelize_spec& spec);
    void run_builder(tutti::training::Phase phase, int device, const tutti_parallelize_spec& spec);
    void check_result(tutti_status status, const char* builder, int device);
    void agree(const std::string& failure);
    void check_ranks_alike();
    void keep_iteration();
    // params.cpp: the model's state and its checkpoint
    void number_rows();
    // assemble.cpp: programs and memory
    void assemble();
    Program compute_program();
    void insert_buckets(Program& program, std::size_t backward_begin);
    void append_fixed_sums(Program& program, bool last);
    void append_sparse_sums(Program& program);
    void append_computed_sync(Program& program);
    void append_update(Program& program);
    void mark_zeroes(Program& program) const;
    void place_all();
    void place_rest();
    void adopt_parameters();
    void bind_tasks();
    int add_task(Task task);
    void joined(tutti::training::Node& node, const std::vector<tutti::training::Item>& parts);
    int bucket_task(const Group& bucket);

    bool synchronous() const { return settings_.local_steps == 0; }
    int replicas() const { return devices() * comm_.size(); }
    double scale() const;
    void need_working(const char* call) const;
    void load_iteration();
    void store_iteration();
    /// Of all replicas; and whose computed parameters are the newest: the first that has samples.
    int64_t count_samples(const int64_t* samples);
    std::vector<Group*> kept_groups();

    tutti::training::Settings settings_;
    std::vector<tutti::training::Device*> devices_;
    tutti::training::Comm comm_;
    tutti::training::Recorder recorder_;
    bool trains_;
    tutti::training::Collectives collectives_;
    std::deque<Task> tasks_;
    struct Binding {  // a task's buffers, by device, known once memory is placed
        int task;
        std::vector<int> in, out;
    };
    std::vector<Binding> bindings_;
    std::deque<Group> parameters_, computed_, state_, buckets_;
    std::vector<tutti::training::DeviceMemory> rest_;  // by device
    std::vector<int> bucket_tasks_;
    struct GroupTask {
        Group* group;
        int task;
    };
    std::vector<GroupTask> group_tasks_;  // tasks on whole groups
    std::vector<int> sync_tasks_;
    std::unique_ptr<tutti::training::Averaging> averaging_;
    std::unique_ptr<tutti::training::MicroSums> micro_sums_;
    std::size_t backward_begin_ = 0;
    Program micro_, last_;
    tutti::training::Engine engine_;
    std::unique_ptr<tutti::training::Executor> executor_;
    std::unique_ptr<tutti::training::GradientStream> stream_;
    int next_stream_ = 0;
    int64_t iteration_ = 0;
    int64_t steps_ = 0;
    bool synced_ = false;
    std::string half_loaded_;  // why the parameters are of no use until they are loaded again
    std::string broken_;       // why nothing works any more
};
