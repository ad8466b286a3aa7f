/**
 * @file epochs.hpp
 * @brief Checkpoints of one epoch after another in a folder, for C++20: header only.
 *
 *     tutti::EpochCheckpoints folder("run-7", &comm);
 *     for (int done = folder.restore(load); done < epochs;) {
 *         train_an_epoch();
 *         folder.save(++done, save);
 *     }
 *
 * A program that begins and ends like this may be killed at any point and started again, also on
 * other numbers of ranks: it goes on after the last epoch that was saved whole. load and save get a
 * path and do it with whatever makes the state up, such as a tutti::Checkpoint.
 */
#ifndef TUTTI_EPOCHS_HPP
#define TUTTI_EPOCHS_HPP

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// A folder of checkpoints, "epoch-000012.safetensors" for twelve epochs that are done. Only rank 0
/// looks at it. Everything here is collective.
class EpochCheckpoints {
public:
    /// comm null: this process alone. keep: how many of the newest stay, 0 for all of them; with
    /// two, one remains when the newest turns out to be damaged.
    explicit EpochCheckpoints(std::string folder, Communicator* comm = nullptr, int keep = 2)
        : folder_(std::move(folder)), comm_(comm), keep_(keep) {}

    /// The path of the checkpoint after so many epochs, whether or not it exists yet.
    std::string path(int epochs) const {
        std::array<char, 32> name{};
        std::snprintf(name.data(), name.size(), "epoch-%06d.safetensors", epochs);
        return (std::filesystem::path(folder_) / name.data()).string();
    }

    /// Calls load(path) for the newest checkpoint, and if that throws an Error with
    /// TUTTI_ERR_INVALID, as a damaged file does, for the one before, and so on. Returns how many
    /// epochs are done; 0 without a call if the folder has none. If it has some and all are
    /// refused, throws the newest's Error: such a run is not begun anew behind its owner's back.
    template <typename Load>
    int restore(Load&& load) {
        refused_.clear();
        in_the_way_.clear();
        const std::vector<int64_t> epochs = on_all_ranks(newest_first());
        for (const int64_t done : epochs) {
            try {
                load(path(static_cast<int>(done)));
                return static_cast<int>(done);
            } catch (const Error& error) {
                // The others must not go on from an older epoch because of what is no fault of the
                // file's, and it says the same on every rank.
                if (error.status() != TUTTI_ERR_INVALID) throw;
                refused_.push_back(error);
                in_the_way_.push_back(done);
            }
        }
        if (!refused_.empty()) throw refused_.front();
        return 0;
    }
    /// Why the last restore left newer checkpoints aside; for the program to tell.
    const std::vector<Error>& refused() const { return refused_; }

    /// Renames what the last restore refused to "….refused", and calls save(path), which must make
    /// the file appear whole or not at all; then the oldest go, and newer ones are renamed, too.
    template <typename Save>
    void save(int epochs, Save&& save) {
        std::error_code ignored;  // save tells what it cannot do
        if (rank() == 0) {
            std::filesystem::create_directories(folder_, ignored);
            // Before the save: one of them may have its path.
            for (const int64_t refused : in_the_way_) set_aside(refused);
        }
        in_the_way_.clear();
        save(path(epochs));
        if (rank() == 0 && keep_ > 0) tidy(epochs);
    }

private:
    int rank() const { return comm_ == nullptr ? 0 : comm_->rank(); }

    // -1 for what is no checkpoint of an epoch.
    static int64_t epochs_of(const std::string& name) {
        constexpr std::string_view begin = "epoch-", end = ".safetensors";
        int64_t epochs = -1;
        if (!name.starts_with(begin) || !name.ends_with(end)) return -1;
        const char* last = name.data() + name.size() - end.size();
        const auto [stop, error] = std::from_chars(name.data() + begin.size(), last, epochs);
        return error == std::errc() && stop == last && epochs > 0 ? epochs : -1;
    }

    // Rank 0's list; where it cannot be had, its one number is -errno.
    std::vector<int64_t> newest_first() const {
        std::vector<int64_t> found;
        if (rank() != 0) return found;
        std::error_code cause;
        for (std::filesystem::directory_iterator at(folder_, cause), end; !cause && at != end;
             at.increment(cause))
            if (const int64_t epochs = epochs_of(at->path().filename().string()); epochs > 0)
                found.push_back(epochs);
        if (cause && cause != std::errc::no_such_file_or_directory) return {-cause.value()};
        std::sort(found.rbegin(), found.rend());
        return found;
    }

    std::vector<int64_t> on_all_ranks(std::vector<int64_t> list) const {
        if (comm_ != nullptr) {
            comm_->barrier("restore epochs");
            std::array<int64_t, 1> count{static_cast<int64_t>(list.size())};
            comm_->broadcast(count);
            list.resize(static_cast<std::size_t>(count[0]));
            comm_->broadcast(list);
        }
        if (!list.empty() && list.front() < 0)
            throw Error(TUTTI_ERR_SYSTEM, 0,
                        folder_ + ": rank 0 cannot look for checkpoints: " +
                            std::generic_category().message(static_cast<int>(-list.front())) +
                            ". What to do: give a folder that rank 0 can read");
        return list;
    }

    // They are the user's: one that has that name already stays, too.
    void set_aside(int64_t epochs) const {
        const std::string old = path(static_cast<int>(epochs));
        std::string aside = old + ".refused";
        std::error_code ignored;
        for (int more = 2; std::filesystem::exists(aside, ignored); ++more)
            aside = old + ".refused." + std::to_string(more);
        std::filesystem::rename(old, aside, ignored);
    }

    void tidy(int saved) const {
        std::vector<int64_t> all = newest_first();
        std::error_code ignored;  // what stays costs room, nothing else
        // Newer ones are of a run that this is not: in the way of the next restore, but the user's.
        while (!all.empty() && all.front() > saved) {
            set_aside(all.front());
            all.erase(all.begin());
        }
        for (auto i = static_cast<std::size_t>(keep_); i < all.size(); ++i)
            std::filesystem::remove(path(static_cast<int>(all[i])), ignored);
    }

    std::string folder_;
    Communicator* comm_;
    int keep_;
    std::vector<Error> refused_;
    std::vector<int64_t> in_the_way_;  // their epochs, until the next save
};

}  // namespace cxx
}  // namespace tutti

#endif
