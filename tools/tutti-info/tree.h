// The files in which Linux describes itself, or a copy of them in some folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::info {

class Tree {
public:
    /// root: "" for this machine's own.
    explicit Tree(std::string root) : root_(std::move(root)) {}

    /// Paths begin with a slash. Empty if the file is missing or unreadable.
    std::string line(const std::string& path) const;
    std::vector<std::string> lines(const std::string& path) const;
    std::optional<uint64_t> number(const std::string& path) const;
    /// The value of a file's line "key: value", without blanks around it.
    std::string value(const std::string& path, const std::string& key) const;

    /// The names in a folder, node2 before node10.
    std::vector<std::string> names(const std::string& folder) const;
    bool exists(const std::string& path) const;
    /// The last component of a symbolic link's target, such as the name of a device's driver.
    std::string link_name(const std::string& path) const;

    std::string real_path(const std::string& path) const { return root_ + path; }

private:
    std::string root_;
};

}  // namespace tutti::info
