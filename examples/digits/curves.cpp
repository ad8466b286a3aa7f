#include "curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace digits {
namespace {

constexpr const char* header = "epoch,loss,accuracy";

std::vector<double> read_losses(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line) || line != header)
        throw std::runtime_error(fmt::format("{}: no loss curve (first line: {})", path, header));
    std::vector<double> losses;
    while (std::getline(file, line)) {
        double loss = 0;
        if (std::sscanf(line.c_str(), "%*d,%lf,%*f", &loss) != 1)
            throw std::runtime_error(fmt::format("{}: line '{}' is not {}", path, line, header));
        losses.push_back(loss);
    }
    return losses;
}

}  // namespace

CurveFile::CurveFile(const std::string& path) {
    if (path.empty()) return;
    file_.reset(std::fopen(path.c_str(), "we"));
    if (!file_)
        throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
    fmt::print(file_.get(), "{}\n", header);
}

void CurveFile::add(int epoch, double loss, double accuracy) {
    if (file_) fmt::print(file_.get(), "{},{:.17g},{:.17g}\n", epoch, loss, accuracy);
}

double largest_difference(const std::vector<std::string>& paths) {
    const std::vector<double> first = read_losses(paths.front());
    double largest = 0;
    for (const std::string& path : paths) {
        const std::vector<double> losses = read_losses(path);
        if (losses.empty() || losses.size() != first.size())
            throw std::runtime_error(fmt::format("{} has {} epochs, {} has {}", path, losses.size(),
                                                 paths.front(), first.size()));
        for (std::size_t i = 0; i < losses.size(); ++i) {
            const double difference = std::fabs(losses[i] - first[i]);
            // std::max would take a NaN for no difference
            largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                             : std::max(largest, difference);
        }
    }
    return largest;
}

}  // namespace digits
