// Runs a target on its kept inputs, on its seeds, and on small changes of both.
// usage: fuzz_replay TARGET [FILE | FOLDER]…     or: fuzz_replay --write FOLDER (all targets'
// seeds)
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/log.h"
#include "fuzz/fuzz.h"

namespace {

using namespace tutti;
using fuzz::Target;
namespace fs = std::filesystem;

// Changes of longer inputs would take long, and find little more.
constexpr std::size_t longest_changed = 2048;

Bytes read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    fuzz::require(in.good() || in.eof(), "a file cannot be read: " + file.string());
    return fuzz::to_bytes(text);
}

std::vector<Bytes> inputs_at(const fs::path& path) {
    if (!fs::is_directory(path)) return {read(path)};
    std::vector<Bytes> inputs;
    for (const auto& entry : fs::directory_iterator(path)) inputs.push_back(read(entry.path()));
    return inputs;
}

// The input, cut off at each length, and with each byte changed.
void run_with_changes(const Target& target, const Bytes& input) {
    target.run(input);
    if (input.size() > longest_changed) return;
    for (std::size_t length = 0; length < input.size(); ++length)
        target.run(Bytes(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(length)));
    Bytes changed = input;
    for (std::byte& byte : changed) {
        const std::byte before = byte;
        for (const auto other : {before ^ std::byte{1}, before ^ std::byte{0x80}, std::byte{0xff}})
            if ((byte = other) != before) target.run(changed);
        byte = before;
    }
}

void write_seeds(const fs::path& folder) {
    for (const Target& target : fuzz::targets()) {
        const fs::path place = folder / target.name;
        fs::create_directories(place);
        int number = 0;
        for (const Bytes& seed : target.seeds()) {
            std::ofstream out(place / ("seed-" + std::to_string(number++)), std::ios::binary);
            out << as_text(seed);
        }
    }
}

int replay(const Target& target, int count, char** paths) {
    std::vector<Bytes> inputs = target.seeds();
    fuzz::require(!inputs.empty(), "there are no seeds");
    for (int i = 0; i < count; ++i)
        for (Bytes& input : inputs_at(paths[i])) inputs.push_back(std::move(input));
    for (const Bytes& input : inputs) run_with_changes(target, input);
    std::printf("%.*s: %zu inputs\n", static_cast<int>(target.name.size()), target.name.data(),
                inputs.size());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    tutti::log::set_level(tutti::log::Level::off);
    const std::string_view first = argc > 1 ? argv[1] : "";
    if (first == "--write" && argc == 3) return write_seeds(argv[2]), 0;
    for (const Target& target : fuzz::targets())
        if (target.name == first) return replay(target, argc - 2, argv + 2);
    std::fprintf(stderr, "usage: %s TARGET [FILE | FOLDER]... | --write FOLDER; targets:\n",
                 argv[0]);
    for (const Target& target : fuzz::targets())
        std::fprintf(stderr, "  %.*s\n", static_cast<int>(target.name.size()), target.name.data());
    return 2;
}
