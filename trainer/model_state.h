// A model's buffers by name: for the program to read and write, and for checkpoints.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/model/recorder.h"
#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// The values between two steps. A buffer that shares its memory has no value then.
class ModelState {
public:
    ModelState(const ModelRecorder& recorder, const Replicas& replicas)
        : recorder_(recorder), replicas_(replicas) {}

    Result<> read(int device, const std::string& name, void* host, std::size_t bytes) const;
    Result<> write(int device, const std::string& name, const void* host, std::size_t bytes) const;

    /// A buffer that belongs in a checkpoint; the first prefix characters of its name are a
    /// scope's.
    struct Param {
        const Buffer* buffer;
        std::size_t prefix;
    };
    Result<std::vector<Param>> params(const std::string& scope) const;
    Result<> add_to(checkpoint::Entries& entries) const;

private:
    const ModelRecorder& recorder_;
    const Replicas& replicas_;
};

}  // namespace tutti::trainer
