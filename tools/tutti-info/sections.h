// The sections of the report, in the order in which they are printed.
#pragma once

#include <span>
#include <string_view>

#include "report.h"
#include "tree.h"

namespace tutti::info {

struct SectionKind {
    std::string_view name;
    std::string_view about;
    Section (*look)(const Tree& tree);
};

std::span<const SectionKind> sections();

Section look_at_build(const Tree& tree);
Section look_at_cpu(const Tree& tree);
Section look_at_numa(const Tree& tree);
Section look_at_memory(const Tree& tree);
Section look_at_limits(const Tree& tree);
Section look_at_interfaces(const Tree& tree);
Section look_at_rdma(const Tree& tree);
Section look_at_gpus(const Tree& tree);
Section look_at_transports(const Tree& tree);
Section look_at_launch(const Tree& tree);

}  // namespace tutti::info
