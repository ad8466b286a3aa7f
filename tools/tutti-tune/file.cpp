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
#include <utility>

#include "base/fd.h"
#include "config/config.h"
#include "select/tuning.h"

namespace tutti::tune {
namespace {

// If the algorithm of the smaller size, or tutti's own choice, takes at most this many times the
// best time, it is kept: a difference that is noise gets no line.
constexpr double as_good = 1.03;

std::string sums_of(const Found& found) {
    return fmt::format("sums={}", found.widening);
}

// The words of a line before its comment, as parse_tuning reads them.
std::istringstream words_of(const std::string& line) {
    return std::istringstream(line.substr(0, line.find('#')));
}

bool has_words(const std::string& line) {
    std::string word;
    return static_cast<bool>(words_of(line) >> word);
}

// The name in a line "machine NAME"; "" for any other line.
std::string machine_of(const std::string& line) {
    std::istringstream in = words_of(line);
    std::string word, name;
    if (!(in >> word) || word != "machine") return name;
    while (in >> word) name += (name.empty() ? "" : " ") + word;
    return name;
}

// Whether the new lines cover this old line. A line that covers more (ranks=2..4, sums of any
// width) stays, behind them.
bool replaced(const std::string& line, const Found& found) {
    std::istringstream in = words_of(line);
    std::string verb, first, second, third, bytes, sums;
    in >> verb >> first >> second >> third >> bytes >> sums;
    if (verb == "constants") return first == found.wire;
    if (verb != "choose" || second != found.wire || third != fmt::format("ranks={}", found.ranks))
        return false;
    return std::any_of(found.cells.begin(), found.cells.end(), [&](const Cell& cell) {
        return collective_name(cell.collective) == first &&
               (!traits_of(cell.collective).reduces || sums == sums_of(found));
    });
}

// The parts of an old file that stay, in the order in which they are written again.
struct Kept {
    std::string top;    // comments
    std::string title;  // the header of this machine's section
    std::string ours;   // the other lines of this machine's section
    std::string others;
};

Kept kept_of(const std::string& text, const Found& found, const std::string& machine) {
    Kept kept;
    std::string notes;  // comments, which stay with the line that follows them
    bool begun = false, in_ours = false;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        line += "\n";
        if (!has_words(line)) {
            notes += line;
            continue;
        }
        const std::string name = machine_of(line);
        if (!begun) {
            begun = true;
            kept.top = std::exchange(notes, "");
            // Behind this machine's section, lines for all machines need this header.
            if (name.empty()) kept.others = "machine *\n";
        }
        if (!name.empty()) in_ours = name == machine;
        std::string& part = !in_ours ? kept.others : !name.empty() ? kept.title : kept.ours;
        part += std::exchange(notes, "");
        if (!in_ours || !replaced(line, found)) part += line;
    }
    (!begun ? kept.top : in_ours ? kept.ours : kept.others) += notes;
    if (kept.title.empty()) kept.title = fmt::format("machine {}\n", machine);
    return kept;
}

std::string constants_line(const Found& found) {
    std::string line = "constants " + found.wire;
    for (std::size_t i = 0; i < term_count; ++i)
        line += fmt::format(" {}={:.4g}", term_name(static_cast<Term>(i)), found.constants[i]);
    return line + "\n";
}

// The border between two measured sizes: their geometric mean.
std::size_t border(std::size_t low, std::size_t high) {
    return static_cast<std::size_t>(
        std::sqrt(static_cast<double>(low) * static_cast<double>(high)));
}

// Keeps tutti's own choice if it is nearly as fast: a small difference is noise and would change in
// the next run.
const std::string& fastest(const Cell& cell) {
    const Time* chosen = cell.of(cell.chosen);
    return chosen && chosen->ratio <= as_good * cell.best().ratio ? chosen->algorithm
                                                                  : cell.best().algorithm;
}

std::string choices(const Found& found) {
    std::string text;
    std::size_t from = 0;
    for (std::size_t i = 0; i < found.cells.size();) {
        const Cell& cell = found.cells[i];
        const std::string& name = fastest(cell);
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

// Reads the old file; "" if there is none. Refuses a file that it cannot read, and a device or a
// pipe, because the new file would replace it (and a pipe might never end).
Result<std::string> read(const std::string& path) {
    std::error_code unknown;
    const auto status = std::filesystem::status(path, unknown);
    if (status.type() == std::filesystem::file_type::not_found) return std::string();
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        return fail(Code::invalid, "the tuning file '{}' is not a regular file", path)
            .advice("give --output a regular file, or a name that does not exist yet");
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    if (in && in.peek() == std::ifstream::traits_type::eof() && !in.bad()) return std::string();
    if (!in || !(text << in.rdbuf())) return fail_errno(errno, fmt::format("reading '{}'", path));
    return text.str();
}

// Follows symbolic links, also dangling ones, so that the file is replaced and the link stays.
std::string target(std::filesystem::path path) {
    constexpr int most_links = 40;  // the kernel's limit
    std::error_code none;
    for (int i = 0; i < most_links && std::filesystem::is_symlink(path, none); ++i)
        path = path.parent_path() / std::filesystem::read_symlink(path, none);
    return path.string();
}

// Makes a new file with a unique name in the same folder, which a rename later puts in place.
Result<std::string> make_beside(const std::string& path) {
    std::string fresh = target(path) + ".XXXXXX";
    if (const UniqueFd fd(::mkostemp(fresh.data(), O_CLOEXEC)); fd) return fresh;
    return fail_errno(errno, fmt::format("cannot write the file '{}'", path));
}

// The permissions of the old file, or the default permissions of a new file. mkostemp gives
// permissions to the owner only.
mode_t rights_of(const std::string& path) {
    struct stat now {};
    if (::stat(path.c_str(), &now) == 0) return now.st_mode & 07777;
    const mode_t mask = ::umask(077);  // umask() is the only way to read the mask
    ::umask(mask);
    return 0666 & ~mask;
}

}  // namespace

std::string updated(const std::string& old_text, const Found& found, const std::string& machine) {
    // The first rule that fits wins, so the measured rules stand before all old ones.
    const Kept kept = kept_of(old_text, found, machine);
    return kept.top + kept.title + constants_line(found) + choices(found) + kept.ours + kept.others;
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
        old_text = "# Made by tutti-tune. What the lines mean: docs/explanation/selection.md\n";
    const std::string text = updated(old_text, found, machine_name());
    TUTTI_TRY(parse_tuning(text, path, machine_name()));  // checks the kept old lines, too
    TUTTI_ASSIGN(const std::string fresh, make_beside(path));
    std::ofstream out(fresh, std::ios::binary);
    out << text;
    out.close();
    if (out && ::chmod(fresh.c_str(), rights_of(path)) == 0 &&
        std::rename(fresh.c_str(), target(path).c_str()) == 0)
        return {};
    ::unlink(fresh.c_str());
    return fail(Code::system, "cannot write the file '{}'", path)
        .advice("check the folder's rights and the free space");
}

}  // namespace tutti::tune
