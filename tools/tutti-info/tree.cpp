#include "tree.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tutti::info {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string text) {
    constexpr const char* blanks = " \t\r\n";
    text.erase(text.find_last_not_of(blanks) + 1);
    return text.erase(0, std::min(text.find_first_not_of(blanks), text.size()));
}

}  // namespace

std::vector<std::string> Tree::lines(const std::string& path) const {
    std::ifstream file(real_path(path));
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) out.push_back(trimmed(line));
    return out;
}

std::string Tree::line(const std::string& path) const {
    std::ifstream file(real_path(path));
    std::string first;
    std::getline(file, first);
    return trimmed(first);
}

std::optional<uint64_t> Tree::number(const std::string& path) const {
    const std::string text = line(path);
    const bool hex = text.starts_with("0x");
    uint64_t value = 0;
    const char* begin = text.data() + (hex ? 2 : 0);
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(begin, end, value, hex ? 16 : 10);
    if (begin == end || parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
    return value;
}

std::string Tree::value(const std::string& path, const std::string& key) const {
    for (const std::string& line : lines(path)) {
        const std::size_t at = line.find(':');
        if (at != std::string::npos && trimmed(line.substr(0, at)) == key)
            return trimmed(line.substr(at + 1));
    }
    return {};
}

std::vector<std::string> Tree::names(const std::string& folder) const {
    std::vector<std::string> out;
    std::error_code ignored;
    for (fs::directory_iterator i(real_path(folder), ignored), end; i != end; i.increment(ignored))
        out.push_back(i->path().filename().string());
    std::sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
        return ::strverscmp(a.c_str(), b.c_str()) < 0;
    });
    return out;
}

bool Tree::exists(const std::string& path) const {
    std::error_code ignored;
    return fs::exists(real_path(path), ignored);
}

std::string Tree::link_name(const std::string& path) const {
    std::error_code ignored;
    return fs::read_symlink(real_path(path), ignored).filename().string();
}

}  // namespace tutti::info
