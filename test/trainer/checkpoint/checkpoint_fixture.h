// Small models to save.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/folder.h"
#include "tutti/checkpoint.h"

namespace tutti::test {

inline std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}
inline void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

/// A checkpoint list that owns its handle. Failures throw.
class List {
public:
    List() { ok(tutti_checkpoint_create(&list_)); }
    List(const List&) = delete;
    ~List() { tutti_checkpoint_destroy(list_); }
    operator tutti_checkpoint*() const { return list_; }

    template <typename T>
    List& add(const std::string& name, std::vector<T>& data, std::vector<int64_t> shape);
    List& add_rows(const std::string& name, std::vector<float>& data, std::vector<int64_t> shape,
                   int64_t first_row, int64_t rows) {
        ok(tutti_checkpoint_add_shard(list_, name.c_str(), data.data(), TUTTI_FLOAT32,
                                      static_cast<int>(shape.size()), shape.data(), first_row,
                                      rows));
        return *this;
    }
    static void ok(tutti_status status) {
        if (status != TUTTI_OK) throw std::runtime_error(tutti_trainer_last_error());
    }

private:
    tutti_checkpoint* list_ = nullptr;
};

template <typename T>
List& List::add(const std::string& name, std::vector<T>& data, std::vector<int64_t> shape) {
    constexpr tutti_dtype dtype = std::is_same_v<T, float>     ? TUTTI_FLOAT32
                                  : std::is_same_v<T, int64_t> ? TUTTI_INT64
                                                               : -1;
    ok(tutti_checkpoint_add(list_, name.c_str(), data.data(), dtype, static_cast<int>(shape.size()),
                            shape.data()));
    return *this;
}

/// A layer with all that training keeps: parameter, computed parameter, optimiser state, a counter.
struct Model {
    std::vector<float> weight{1.5F, -2, 3, 4, 5, 6}, mean{0.25F, 0.5F}, momentum{9, 8, 7, 6, 5, 4};
    std::vector<int64_t> iteration{41};

    /// In place: lists keep where the values lie.
    void clear() {
        for (std::vector<float>* values : {&weight, &mean, &momentum})
            std::fill(values->begin(), values->end(), 0.0F);
        iteration[0] = 0;
    }
    void add_to(List& list, const std::string& scope = "") {
        list.add(scope + "weight", weight, {2, 3});
        list.add(scope + "bn/running_mean", mean, {2});
        list.add(scope + "optimizer/weight/momentum", momentum, {2, 3});
        list.add(scope + "iteration", iteration, {});
    }
    friend bool operator==(const Model&, const Model&) = default;
};

}  // namespace tutti::test
