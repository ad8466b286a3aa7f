// NULL for every pointer of the trainer layer's headers.
#include "errors/areas.h"
#include "errors/null_calls.h"
#include "tutti/checkpoint.h"
#include "tutti/trainer.h"
#include "tutti/trainer_parallel.h"
#include "tutti/trainer_sharded.h"

namespace errors_test::trainer_nulls {
namespace {

#define REFUSES(function)                              \
    {                                                  \
#function, [] { return with_nulls(function); } \
    }

const Refusal refusals[] = {
    REFUSES(tutti_checkpoint_create),
    REFUSES(tutti_checkpoint_add),
    REFUSES(tutti_checkpoint_add_shard),
    REFUSES(tutti_checkpoint_set_text),
    REFUSES(tutti_checkpoint_set_copy),
    REFUSES(tutti_checkpoint_save),
    REFUSES(tutti_checkpoint_load),
    REFUSES(tutti_device_create),
    REFUSES(tutti_device_create_cpu),
    REFUSES(tutti_model_buffer),
    REFUSES(tutti_model_find),
    REFUSES(tutti_model_info),
    REFUSES(tutti_model_gradient),
    REFUSES(tutti_model_sparse),
    REFUSES(tutti_model_learning_rate),
    REFUSES(tutti_model_iteration),
    REFUSES(tutti_model_operation),
    REFUSES(tutti_model_collective),
    REFUSES(tutti_model_copy),
    REFUSES(tutti_model_enter),
    REFUSES(tutti_model_leave),
    REFUSES(tutti_losses_add),
    REFUSES(tutti_parallelize),
    REFUSES(tutti_trainer_init_sync),
    REFUSES(tutti_trainer_sync),
    REFUSES(tutti_trainer_step),
    REFUSES(tutti_trainer_epoch_barrier),
    REFUSES(tutti_trainer_sparse_pull),
    REFUSES(tutti_trainer_begin),
    REFUSES(tutti_trainer_grad_ready),
    REFUSES(tutti_trainer_finish),
    REFUSES(tutti_trainer_set_recovery),
    REFUSES(tutti_trainer_recover),
    REFUSES(tutti_trainer_admit),
    REFUSES(tutti_trainer_buffer_info),
    REFUSES(tutti_trainer_find),
    REFUSES(tutti_trainer_read),
    REFUSES(tutti_trainer_write),
    {"tutti_trainer_param_count",
     [] {
         return tutti_trainer_param_count(nullptr, nullptr) == -1 ? TUTTI_ERR_INVALID : TUTTI_OK;
     }},
    REFUSES(tutti_trainer_param),
    REFUSES(tutti_trainer_save),
    REFUSES(tutti_trainer_load),
    REFUSES(tutti_trainer_checkpoint),
    REFUSES(tutti_trainer_count),
    REFUSES(tutti_trainer_reduced_bytes),
    REFUSES(tutti_value_create_array),
    REFUSES(tutti_value_create_plain),
    REFUSES(tutti_value_create_sequence),
    REFUSES(tutti_value_create_map),
    REFUSES(tutti_value_share),
    REFUSES(tutti_split_and_load),
    REFUSES(tutti_pool_create),
    REFUSES(tutti_parallel_apply),
    REFUSES(tutti_parallel_create),
    REFUSES(tutti_parallel_create_free),
    REFUSES(tutti_parallel_push),
    REFUSES(tutti_parallel_then),
    REFUSES(tutti_parallel_pull),
    REFUSES(tutti_parallel_exchange),
    REFUSES(tutti_data_parallel_create),
    REFUSES(tutti_data_parallel_forward),
    REFUSES(tutti_data_parallel_loss),
    REFUSES(tutti_sync_bn_create),
    REFUSES(tutti_sync_bn_forward),
    REFUSES(tutti_sync_bn_backward),
    // Without labels there is nothing to index, and the pointers may be NULL.
    {"tutti_shard_index", [] { return tutti_shard_index(nullptr, 1, 10, 2, 0, -1, nullptr); }},
    REFUSES(tutti_shard_range),
    REFUSES(tutti_sharded_fc_create),
    REFUSES(tutti_sharded_fc_forward),
    REFUSES(tutti_sharded_fc_backward),
};

#undef REFUSES

const Answer answers[] = {
    {"tutti_checkpoint_destroy", [] { return tutti_checkpoint_destroy(nullptr), true; }},
    {"tutti_checkpoint_text", [] { return tutti_checkpoint_text(nullptr, nullptr) == nullptr; }},
    {"tutti_checkpoint_missing", [] { return tutti_checkpoint_missing(nullptr, 0) == nullptr; }},
    {"tutti_device_destroy", [] { return tutti_device_destroy(nullptr), true; }},
    {"tutti_model_device", [] { return tutti_model_device(nullptr) == -1; }},
    {"tutti_model_replica", [] { return tutti_model_replica(nullptr) == -1; }},
    {"tutti_model_replicas", [] { return tutti_model_replicas(nullptr) == -1; }},
    {"tutti_step_data", [] { return tutti_step_data(nullptr, 0) == nullptr; }},
    {"tutti_step_gradient", [] { return tutti_step_gradient(nullptr, 0) == nullptr; }},
    {"tutti_step_device", [] { return tutti_step_device(nullptr) == -1; }},
    {"tutti_step_micro_batch", [] { return tutti_step_micro_batch(nullptr) == -1; }},
    {"tutti_step_iteration", [] { return tutti_step_iteration(nullptr) == -1; }},
    {"tutti_step_loss_scale", [] { return tutti_step_loss_scale(nullptr) == 0; }},
    {"tutti_step_samples", [] { return tutti_step_samples(nullptr) == -1; }},
    {"tutti_trainer_destroy", [] { return tutti_trainer_destroy(nullptr), true; }},
    {"tutti_trainer_comm", [] { return tutti_trainer_comm(nullptr) == nullptr; }},
    {"tutti_trainer_recoveries", [] { return tutti_trainer_recoveries(nullptr) == -1; }},
    {"tutti_trainer_recovery_bytes", [] { return tutti_trainer_recovery_bytes(nullptr) == 0; }},
    {"tutti_trainer_buffer_count", [] { return tutti_trainer_buffer_count(nullptr, 0) == -1; }},
    {"tutti_value_destroy", [] { return tutti_value_destroy(nullptr), true; }},
    {"tutti_value_count", [] { return tutti_value_count(nullptr) == 0; }},
    {"tutti_value_item", [] { return tutti_value_item(nullptr, 0) == nullptr; }},
    {"tutti_value_key", [] { return tutti_value_key(nullptr, 0) == nullptr; }},
    {"tutti_value_array", [] { return tutti_value_array(nullptr) == nullptr; }},
    {"tutti_value_plain", [] { return tutti_value_plain(nullptr) == nullptr; }},
    {"tutti_pool_destroy", [] { return tutti_pool_destroy(nullptr), true; }},
    {"tutti_pool_size", [] { return tutti_pool_size(nullptr) == -1; }},
    {"tutti_parallel_destroy", [] { return tutti_parallel_destroy(nullptr), true; }},
    {"tutti_parallel_size", [] { return tutti_parallel_size(nullptr) == 0; }},
    {"tutti_data_parallel_destroy", [] { return tutti_data_parallel_destroy(nullptr), true; }},
    {"tutti_data_parallel_pool", [] { return tutti_data_parallel_pool(nullptr) == nullptr; }},
    {"tutti_sync_bn_destroy", [] { return tutti_sync_bn_destroy(nullptr), true; }},
    {"tutti_sync_bn_bytes", [] { return tutti_sync_bn_bytes(nullptr) == 0; }},
    {"tutti_sharded_fc_destroy", [] { return tutti_sharded_fc_destroy(nullptr), true; }},
};

constexpr const char* of_the_layer = "the layer hands it to a replica, never NULL";
constexpr Uncalled uncalled[] = {
    {"tutti_value_kind_of", "the header says that the value is not NULL"},
    {"tutti_replica_device", of_the_layer},
    {"tutti_replica_count", of_the_layer},
    {"tutti_replica_training", of_the_layer},
    {"tutti_replica_recording", of_the_layer},
    {"tutti_replica_input", of_the_layer},
    {"tutti_replica_set_output", of_the_layer},
    {"tutti_replica_set_error", of_the_layer},
};

}  // namespace

void provoke_null_pointers_of_trainer(Ledger& ledger) {
    call_with_nulls(ledger,
                    {{"checkpoint.h", "trainer.h", "trainer_errors.h", "trainer_parallel.h",
                      "trainer_sharded.h"},
                     refusals,
                     answers,
                     uncalled},
                    &Ledger::take_trainer);
}

}  // namespace errors_test::trainer_nulls
