#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/config.h"
#include "base/fd.h"
#include "comm/tuning.h"

namespace tutti::tune {
namespace {

// A neighbour's choice is kept where it is as good: fewer lines, and no line for noise.
constexpr double as_good = 1.03;

std::string sums_of(const Found& found) {
    return fmt::format("sums={}", found.widening);
}

bool measured(const std::string& line, const Found& found) {
    std::istringstream in(line);
    std::string verb, first, second, third, bytes, sums;
    in >> verb >> first >> second >> third >> bytes >> sums;
    if (verb == "constants") return first == found.wire;
    if (verb != "choose" || second != found.wire || third != fmt::format("ranks={}", found.ranks))
        return false;
    if (sums.starts_with("sums=") && sums != sums_of(found)) return false;
    return std::any_of(found.cells.begin(), found.cells.end(),
                       [&](const Cell& cell) { return collective_name(cell.collective) == first; });
}

std::string constants_line(const Found& found) {
    std::string line = "constants " + found.wire;
    for (std::size_t i = 0; i < term_count; ++i)
        line += fmt::format(" {}={:.4g}", term_name(static_cast<Term>(i)), found.constants[i]);
    return line + "\n";
}

// Between two sizes the border is half-way, by factors.
std::size_t border(std::size_t low, std::size_t high) {
    return static_cast<std::size_t>(
        std::sqrt(static_cast<double>(low) * static_cast<double>(high)));
}

std::string choices(const Found& found) {
    std::string text;
    std::size_t from = 0;
    for (std::size_t i = 0; i < found.cells.size();) {
        const Cell& cell = found.cells[i];
        const std::string& name = cell.best().algorithm;
        std::size_t next = i + 1;
        const auto same = [&] { return found.cells[next].collective == cell.collective; };
        for (; next < found.cells.size() && same(); ++next) {
            const Time* time = found.cells[next].of(name);
            if (!time || time->ratio > as_good * found.cells[next].best().ratio) break;
        }
        const bool last = next == found.cells.size() || !same();
        const std::size_t to =
            last ? 0 : border(found.cells[next - 1].bytes, found.cells[next].bytes);
        const bool sums = traits_of(cell.collective).reduces;
        text += fmt::format("choose {} {} ranks={} bytes={}..{} {}{}{}\n",
                            collective_name(cell.collective), found.wire, found.ranks, from,
                            last ? "*" : std::to_string(to), sums ? sums_of(found) : "",
                            sums ? " " : "", name);
        from = last ? 0 : to + 1;
        i = next;
    }
    return text;
}

// "" if there is none. Another that cannot be read would be lost, and so would be what is no file:
// a device or a pipe, which might also never end.
Result<std::string> read(const std::string& path) {
    std::error_code unknown;
    const auto status = std::filesystem::status(path, unknown);
    if (status.type() == std::filesystem::file_type::not_found) return std::string();
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        return fail(Code::invalid, "'{}' is no regular file: a tuning file is replaced as a whole",
                    path);
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    if (in && in.peek() == std::ifstream::traits_type::eof() && !in.bad()) return std::string();
    if (!in || !(text << in.rdbuf())) return fail_errno(errno, fmt::format("reading '{}'", path));
    return text.str();
}

// A link stays one, also one that leads nowhere yet: the file is replaced.
std::string target(std::filesystem::path path) {
    constexpr int most_links = 40;  // the kernel's
    std::error_code none;
    for (int i = 0; i < most_links && std::filesystem::is_symlink(path, none); ++i)
        path = path.parent_path() / std::filesystem::read_symlink(path, none);
    return path.string();
}

// The name of a new file beside it, which a rename puts in its place: one that nobody has.
Result<std::string> make_beside(const std::string& path) {
    std::string fresh = target(path) + ".XXXXXX";
    if (const UniqueFd fd(::mkostemp(fresh.data(), O_CLOEXEC)); fd) return fresh;
    return fail_errno(errno, fmt::format("the file '{}' cannot be written", path));
}

// A file's own, or those that any new one gets; mkostemp's are its owner's alone.
mode_t rights_of(const std::string& path) {
    struct stat now {};
    if (::stat(path.c_str(), &now) == 0) return now.st_mode & 07777;
    const mode_t mask = ::umask(077);  // there is no other way to ask
    ::umask(mask);
    return 0666 & ~mask;
}

}  // namespace

std::string updated(const std::string& old_text, const Found& found, const std::string& machine) {
    // Our machine's section first, then the others as they were.
    std::string ours, others;
    bool in_ours = false;
    std::istringstream in(old_text);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("machine ")) in_ours = line == "machine " + machine;
        if (!in_ours)
            others += line + "\n";
        else if (!line.starts_with("machine ") && !line.starts_with("#") && !line.empty() &&
                 !measured(line, found))
            ours += line + "\n";
    }
    return fmt::format("{}machine {}\n{}{}{}", others, machine, ours, constants_line(found),
                       choices(found));
}

Result<> check_tuning(const std::string& path) {
    TUTTI_ASSIGN(const std::string text, read(path));
    TUTTI_TRY(parse_tuning(text, path, machine_name()));
    TUTTI_ASSIGN(const std::string fresh, make_beside(path));
    ::unlink(fresh.c_str());
    return {};
}

Result<> write_tuning(const std::string& path, const Found& found) {
    TUTTI_ASSIGN(std::string old_text, read(path));
    if (old_text.empty())
        old_text = "# Made by tutti-tune. What the lines mean: docs/selection.md\n";
    const std::string text = updated(old_text, found, machine_name());
    TUTTI_TRY(parse_tuning(text, path, machine_name()));  // what is kept of the old one, too
    TUTTI_ASSIGN(const std::string fresh, make_beside(path));
    std::ofstream out(fresh, std::ios::binary);
    out << text;
    out.close();
    if (out && ::chmod(fresh.c_str(), rights_of(path)) == 0 &&
        std::rename(fresh.c_str(), target(path).c_str()) == 0)
        return {};
    ::unlink(fresh.c_str());
    return fail(Code::system, "the file '{}' cannot be written", path);
}

}  // namespace tutti::tune
