// Loss curves as CSV files: written by a run, compared between runs.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace digits {

/// epoch,loss,accuracy with all 17 digits.
class CurveFile {
public:
    /// path "": writes nothing. Throws std::runtime_error if the file cannot be written.
    explicit CurveFile(const std::string& path);
    void add(int epoch, double loss, double accuracy);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

/// The largest difference of a loss between the first curve and the others. Throws
/// std::runtime_error for a file that is not a curve, or that has another length.
double largest_difference(const std::vector<std::string>& paths);

}  // namespace digits
