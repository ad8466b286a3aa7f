// The tensors of a coalesced call: their batches, and the name of their list.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tutti_torch {

/// The indices of the tensors of each call: small tensors of one type together, in the order of the
/// list, then large ones alone. Types and lengths decide, so it is the same on all ranks. as_0_1_0:
/// with that version's limit.
std::vector<std::vector<std::size_t>> batches_of(const std::vector<at::Tensor>& tensors,
                                                 bool as_0_1_0);

/// The same for tensors with a block for each rank, which are rearranged for a common call, only if
/// `together` is set and all of them are on the host.
std::vector<std::vector<std::size_t>> batches_of_blocks(const std::vector<at::Tensor>& tensors,
                                                        bool together);

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& tensors,
                               const std::vector<std::size_t>& places);

/// A name for the calls with several tensors of a list (tutti_call_opts): a hash of the list's
/// types and lengths. Ranks with different lists get MISMATCH, even if their calls have the same
/// length.
class ListName {
public:
    explicit ListName(const std::vector<at::Tensor>& tensors);
    const char* text() const { return text_.data(); }

private:
    std::array<char, 16> text_{};
};

}  // namespace tutti_torch
