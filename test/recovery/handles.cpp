// A process that others meet by its handle. It reads commands, a line each, and answers each with a
// line:
//   handle                            ok HANDLE, in hex
//   meet UUID TIMEOUT_MS HANDLE…      ok RANK SIZE; becomes the communicator of the next commands
//   sum                               ok SUM: of 1 on each rank
//   leave                             ok: destroys the communicator
//   abort                             ok
//   holds                             ok DESCRIPTORS THREADS
// A failure is: failed STATUS RANK TEXT
#include <tutti/tutti.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

tutti_comm* comm = nullptr;

std::string in_hex(const std::vector<unsigned char>& bytes) {
    std::string text;
    char two[3];
    for (const unsigned char byte : bytes) {
        std::snprintf(two, sizeof two, "%02x", byte);
        text += two;
    }
    return text;
}

std::vector<unsigned char> of_hex(const std::string& text) {
    std::vector<unsigned char> bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<unsigned char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return bytes;
}

void answer(tutti_status status, const std::string& words = "") {
    if (status == TUTTI_OK)
        std::cout << "ok " << words << std::endl;
    else
        std::cout << "failed " << tutti_status_string(status) << ' ' << tutti_last_error_rank()
                  << ' ' << tutti_last_error() << std::endl;
}

void give_handle() {
    std::vector<unsigned char> handle(TUTTI_MAX_HANDLE_BYTES);
    std::size_t bytes = 0;
    const tutti_status status =
        tutti_comm_get_handle(nullptr, handle.data(), handle.size(), &bytes);
    handle.resize(bytes);
    answer(status, in_hex(handle));
}

void meet(std::istringstream& words) {
    std::string uuid, word;
    long timeout_ms = -1;
    words >> uuid >> timeout_ms;
    std::vector<std::vector<unsigned char>> handles;
    while (words >> word) handles.push_back(of_hex(word));
    std::vector<const void*> starts;
    std::vector<std::size_t> sizes;
    for (const auto& handle : handles) {
        starts.push_back(handle.data());
        sizes.push_back(handle.size());
    }
    tutti_comm* made = nullptr;
    const tutti_status status =
        tutti_comm_reconfigure(nullptr, uuid.c_str(), starts.data(), sizes.data(),
                               static_cast<int>(handles.size()), timeout_ms, &made);
    answer(status,
           std::to_string(tutti_comm_rank(made)) + ' ' + std::to_string(tutti_comm_size(made)));
    if (status != TUTTI_OK) return;
    tutti_comm_destroy(comm);
    comm = made;
}

void sum() {
    int one = 1, all = 0;
    const tutti_status status = tutti_allreduce(comm, &one, &all, 1, TUTTI_INT32, TUTTI_SUM);
    answer(status, std::to_string(all));
}

long entries_of(const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
}

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command;
        words >> command;
        if (command == "handle") give_handle();
        if (command == "meet") meet(words);
        if (command == "sum") sum();
        if (command == "abort") answer(tutti_comm_abort(comm));
        if (command == "leave") answer(tutti_comm_destroy(std::exchange(comm, nullptr)));
        if (command == "holds")
            answer(TUTTI_OK, std::to_string(entries_of("/proc/self/fd")) + ' ' +
                                 std::to_string(entries_of("/proc/self/task")));
    }
    tutti_comm_destroy(comm);
}
