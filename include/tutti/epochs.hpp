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
 * Such a program may be killed at any point and started again, also with another number of ranks:
 * it continues after the last complete checkpoint. load and save get a path and load or save the
 * program's state there, for example with a tutti::Checkpoint.
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

/// A folder of checkpoints: "epoch-000012.safetensors" after twelve epochs. Only rank 0
/// lists it. Everything here is collective.
class EpochCheckpoints {
public:
    /// comm null: this process alone. keep: the number of newest checkpoints to keep, 0 for all;
    /// with two, one remains if the newest is damaged.
    explicit EpochCheckpoints(std::string folder, Communicator* comm = nullptr, int keep = 2)
        : folder_(std::move(folder)), comm_(comm), keep_(keep) {}

    /// The path of the checkpoint after that many epochs, whether or not it exists yet.
    std::string path(int epochs) const {
        std::array<char, 32> name{};
        std::snprintf(name.data(), name.size(), "epoch-%06d.safetensors", epochs);
        return (std::filesystem::path(folder_) / name.data()).string();
    }

    /// Calls load(path) for the newest checkpoint. If load throws an Error with
    /// TUTTI_ERR_INVALID, as for a damaged file, tries the next older one, and so on. Returns the
    /// number of epochs done; 0 without a call if the folder has no checkpoint. If load refuses
    /// all of them, throws the newest one's Error, so that the run does not silently start anew.
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
                // INVALID alone blames the file, and every rank gets it. After any other error
                // (system, lost peer) a rank must not continue from an older epoch.
                if (error.status() != TUTTI_ERR_INVALID) throw;
                refused_.push_back(error);
                in_the_way_.push_back(done);
            }
        }
        if (!refused_.empty()) throw refused_.front();
        return 0;
    }
    /// The errors of the newer checkpoints that the last restore skipped, for the program's log.
    const std::vector<Error>& refused() const { return refused_; }

    /// Renames checkpoints that the last restore refused to "….refused" and calls save(path), which
    /// must create the file atomically. If keep is not 0, then removes the oldest checkpoints and
    /// renames those of later epochs to "….refused", too.
    template <typename Save>
    void save(int epochs, Save&& save) {
        std::error_code ignored;  // save reports a missing folder
        if (rank() == 0) {
            std::filesystem::create_directories(folder_, ignored);
            // Before the save: a refused checkpoint may have the new one's path.
            for (const int64_t refused : in_the_way_) set_aside(refused);
        }
        in_the_way_.clear();
        save(path(epochs));
        if (rank() == 0 && keep_ > 0) tidy(epochs);
    }

private:
    int rank() const { return comm_ == nullptr ? 0 : comm_->rank(); }

    // The number of epochs in a checkpoint's name; -1 for other names.
    static int64_t epochs_of(const std::string& name) {
        constexpr std::string_view begin = "epoch-", end = ".safetensors";
        int64_t epochs = -1;
        if (!name.starts_with(begin) || !name.ends_with(end)) return -1;
        const char* last = name.data() + name.size() - end.size();
        const auto [stop, error] = std::from_chars(name.data() + begin.size(), last, epochs);
        return error == std::errc() && stop == last && epochs > 0 ? epochs : -1;
    }

    // Rank 0's list; if rank 0 cannot read the folder, its one number is -errno.
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

    // The files are the user's: an existing file of that name is kept, too.
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
        std::error_code ignored;  // a file that stays only costs space
        // Checkpoints of later epochs are of another run. The next restore would take them, so they
        // are renamed, not removed: they are the user's.
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
    std::vector<int64_t> in_the_way_;  // epochs of refused checkpoints, until the next save
};

}  // namespace cxx
}  // namespace tutti

#endif
