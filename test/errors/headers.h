// The functions that the public headers declare, read from the headers themselves.
#pragma once

#include <string>
#include <vector>

namespace errors_test {

struct Function {
    std::string name;
    bool takes_pointer = false;
};

/// The exported functions of include/tutti/HEADER.
std::vector<Function> functions_of(const std::string& header);

/// The names of the functions of all these headers that take a pointer.
std::vector<std::string> functions_with_pointers(const std::vector<std::string>& headers);

}  // namespace errors_test
