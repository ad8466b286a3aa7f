// Checks operations against their declarations: while one runs, accesses to undeclared buffers
// fault.
#pragma once

#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/plan/program.h"

namespace tutti::trainer {

/// Buffers lie on pages of their own (Checker::page_bytes()). One operation at a time in a process.
class Checker {
public:
    /// The size of the kernel's pages: 4096 on x86-64, up to 65,536 on aarch64.
    static std::size_t page_bytes();

    Checker(const ModelRecorder& recorder, std::vector<Device*> devices)
        : recorder_(recorder), devices_(std::move(devices)) {}

    Result<> begin(const ProgramNode& node);
    /// The first access of the operation that its declaration lacks, in words; "" if there was
    /// none.
    Result<std::string> end();

    struct ProtectedRegion {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
        int buffer = none;
        tutti_access access = TUTTI_ACCESS_WRITE;
    };

private:
    Result<> protect(const ProtectedRegion& region, tutti_access access);
    Result<> protect_all();

    const ModelRecorder& recorder_;
    std::vector<Device*> devices_;
    std::vector<ProtectedRegion> regions_;
};

}  // namespace tutti::trainer
