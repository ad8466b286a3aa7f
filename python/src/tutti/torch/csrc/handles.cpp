// Groups of processes that exchange their handles: torch.distributed._reconfigure of torch 2.15 and
// newer. Torch's handles are texts, so these are tutti's handles in hexadecimal.
#include <algorithm>
#include <memory>

#include "backend.h"

namespace tutti_torch {
namespace {

using Config = std::unique_ptr<tutti_config, decltype(&tutti_config_destroy)>;

constexpr const char* name = "reconfigure";
constexpr std::string_view prefix = "tutti:";
constexpr std::string_view digits = "0123456789abcdef";
constexpr std::size_t shown_bytes = 40;  // of a wrong handle, in the error
constexpr std::chrono::milliseconds replace_grace{5000};

std::string as_text(const std::vector<unsigned char>& bytes) {
    std::string text(prefix);
    for (const unsigned char byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

// The library checks the bytes.
std::vector<unsigned char> as_bytes(const std::string& text) {
    const bool ours = text.compare(0, prefix.size(), prefix) == 0;
    std::vector<unsigned char> bytes;
    for (std::size_t at = prefix.size(); ours && at < text.size(); at += 2) {
        const auto high = digits.find(text[at]);
        const auto low = at + 1 < text.size() ? digits.find(text[at + 1]) : std::string::npos;
        if (high == std::string::npos || low == std::string::npos) break;
        bytes.push_back(static_cast<unsigned char>(high << 4 | low));
    }
    TORCH_CHECK_VALUE(ours && text.size() == prefix.size() + 2 * bytes.size(),
                      "tutti reconfigure: the handle '", text.substr(0, shown_bytes),
                      "' is not one of tutti's, or is cut short. What to do: pass the texts that "
                      "_get_reconfigure_handle returned in groups of this backend, unchanged");
    return bytes;
}

Config config_of(const Settings& settings, Backend::Milliseconds timeout) {
    tutti_config* raw = nullptr;
    check(tutti_config_create(&raw), name);
    Config config(raw, &tutti_config_destroy);
    const auto set = [&](const char* key, const std::string& value) {
        check(tutti_config_set(config.get(), key, value.c_str()), name);
    };
    // The launcher's rank and size are not those of the group.
    set("size", "1");
    set("rank", "0");
    set("timeout_ms", std::to_string(deadline_of(timeout).count()));
    for (const auto& [key, value] : settings) set(key.c_str(), value);
    return config;
}

// Its operation was the meeting, which is over.
class MeetingWork final : public c10d::Work {
public:
    explicit MeetingWork(int rank) : c10d::Work(rank, c10d::OpType::UNKNOWN) { finish(); }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        auto future =
            c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        future->markCompleted(c10::IValue(std::vector<at::Tensor>()));
        return future;
    }
};

}  // namespace

std::string Group::handle(const Settings& settings, std::chrono::milliseconds timeout) {
    const Config config = config_of(settings, timeout);
    std::vector<unsigned char> handle(TUTTI_MAX_HANDLE_BYTES);
    std::size_t bytes = 0;
    check(tutti_comm_get_handle(config.get(), handle.data(), handle.size(), &bytes), name);
    handle.resize(bytes);
    return as_text(handle);
}

std::shared_ptr<Group> Group::meet(const std::string& uuid, const std::vector<std::string>& handles,
                                   std::chrono::milliseconds timeout,
                                   std::chrono::milliseconds limit, const Settings& settings) {
    const Config config = config_of(settings, timeout);
    std::vector<std::vector<unsigned char>> bytes;
    std::vector<const void*> starts;
    std::vector<std::size_t> sizes;
    for (const std::string& handle : handles) {
        bytes.push_back(as_bytes(handle));
        starts.push_back(bytes.back().data());
        sizes.push_back(bytes.back().size());
    }
    tutti_comm* comm = nullptr;
    check(
        tutti_comm_reconfigure(config.get(), uuid.c_str(), starts.data(), sizes.data(),
                               static_cast<int>(starts.size()), deadline_of(limit).count(), &comm),
        name);
    std::shared_ptr<Group> group(new Group(comm, streams_wanted(settings), nullptr));
    group->all_name_lists_ = true;  // older versions cannot reconfigure
    return group;
}

#if defined(C10D_BACKEND_HAS_RECONFIGURE)

std::string Backend::get_reconfigure_handle() const {
    return Group::handle(options_->settings, options_->timeout);
}

// Pending operations of the old group must not hold up the program: all ranks of the new one have
// called reconfigure.
void Backend::replace_group(std::shared_ptr<Group> made) {
    std::shared_ptr<Group> old = std::move(made);
    {
        const std::lock_guard lock(lifecycle_);
        std::swap(group_, old);
        met_ = true;
    }
    const auto pending = reaper_->in_flight().pending();
    if (old && !pending.empty()) (void)tutti_comm_abort(old->comm());
    for (const auto& operation : pending) operation->wait(replace_grace);
    drop_batch();
    old.reset();
    reaper_->forget_failures();
}

// If it fails, the group stays as it was.
Backend::WorkPtr Backend::reconfigure(const c10d::ReconfigureOptions& opts) {
    std::vector<std::string> handles;
    if (const auto* ordered = std::get_if<std::vector<std::string>>(&opts.handles)) {
        handles = *ordered;
    } else {
        const auto& set = std::get<std::unordered_set<std::string>>(opts.handles);
        handles.assign(set.begin(), set.end());
        std::sort(handles.begin(), handles.end());
    }
    const std::string uuid = options_->group_name + "/" + std::to_string(opts.uuid);
    auto made = noting([&] {
        return Group::meet(uuid, handles, options_->timeout,
                           opts.timeout.value_or(options_->timeout), options_->settings);
    });
    rank_ = tutti_comm_rank(made->comm());
    size_ = tutti_comm_size(made->comm());
    // Processes that have just come count from zero.
    sequence_ = 0;
    messages_ = 0;
    monitored_ = 0;
    timeout_ms_ = -1;
    replace_group(std::move(made));
    return c10::make_intrusive<MeetingWork>(rank_);
}

#endif

}  // namespace tutti_torch
