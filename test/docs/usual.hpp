// The variables and functions that a fragment of C++ in the documents uses without declaring them.
// A fragment is compiled and not linked.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <tutti/buffers.hpp>
#include <tutti/checkpoint.hpp>
#include <tutti/epochs.hpp>
#include <tutti/plans.hpp>
#include <tutti/recovery.hpp>
#include <tutti/trainer.hpp>
#include <tutti/trainer_parallel.hpp>
#include <tutti/trainer_sharded.hpp>
#include <tutti/tutti.hpp>
#include <vector>

extern tutti::Communicator comm;
extern tutti::Config config;
extern std::vector<float> in, out, x;
extern std::size_t count, n;
extern int rank, size, root;
