// The tensors of a coalesced call: which of them travel together, and what their list is called.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tutti_torch {

/// Places in the list for each call: small tensors of one type together, in the order of the list,
/// then large ones alone. The same on all ranks, as types and lengths are. as_0_1_0: with that
/// version's limit.
std::vector<std::vector<std::size_t>> batches_of(const std::vector<at::Tensor>& tensors,
                                                 bool as_0_1_0);

/// The same for tensors that have a block for each rank, which are rearranged to travel together:
/// only where `together` says so and all of them are on the host.
std::vector<std::vector<std::size_t>> batches_of_blocks(const std::vector<at::Tensor>& tensors,
                                                        bool together);

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& tensors,
                               const std::vector<std::size_t>& places);

/// A name for the calls in which several tensors of a list travel (tutti_call_opts): a hash of the
/// types and lengths of the list. Ranks whose lists differ get a MISMATCH, where their calls are of
/// one length, too.
class ListName {
public:
    explicit ListName(const std::vector<at::Tensor>& tensors);
    const char* text() const { return text_.data(); }

private:
    std::array<char, 16> text_{};
};

}  // namespace tutti_torch
