// A communicator as LightGBM's network: the two functions that LGBM_NetworkInitWithFunctions takes.
#pragma once

#include <cstdint>
#include <memory>

#include "communicator.h"

namespace tutti_python {

/// From its construction to leave(), LightGBM's collectives in the constructing thread go over the
/// communicator. LightGBM passes its functions no argument of their owner's, and its own network
/// belongs to a thread; so does this one. Members need the GIL, the two functions do not.
class LightgbmNetwork {
public:
    /// RuntimeError if this thread has a network already; ValueError for a closed communicator.
    explicit LightgbmNetwork(const Communicator& comm);
    ~LightgbmNetwork();
    LightgbmNetwork(const LightgbmNetwork&) = delete;

    /// Whether a collective of LightGBM's has used it.
    bool used() const;
    /// RuntimeError in another thread than the constructing one, whose network ends all the same. A
    /// collective that runs there keeps the communicator until it ends.
    void leave();

    /// The functions' addresses. A failed collective throws std::runtime_error, which LightGBM's C
    /// API turns into its error.
    static std::uintptr_t reduce_scatter_address();
    static std::uintptr_t allgather_address();

    /// The part that the thread keeps.
    struct Link;

private:
    std::shared_ptr<Link> link_;
};

}  // namespace tutti_python
