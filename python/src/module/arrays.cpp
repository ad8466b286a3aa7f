#include "arrays.h"

#include <array>
#include <cstring>
#include <string>

namespace nb = nanobind;

namespace tutti_python {
namespace {

using Code = nb::dlpack::dtype_code;

// As DLPack 1.1 numbers them; nanobind has names for them in its newer versions only.
constexpr auto float8_e4m3fn = static_cast<Code>(10);
constexpr auto float8_e5m2 = static_cast<Code>(12);

struct TypeRow {
    Code code;
    int bits;
    Elements elements;
};

constexpr std::array types{
    TypeRow{Code::Int, 8, {TUTTI_INT8, 1, false}},
    TypeRow{Code::Int, 16, {TUTTI_INT16, 1, false}},
    TypeRow{Code::Int, 32, {TUTTI_INT32, 1, false}},
    TypeRow{Code::Int, 64, {TUTTI_INT64, 1, false}},
    TypeRow{Code::UInt, 8, {TUTTI_UINT8, 1, false}},
    TypeRow{Code::UInt, 16, {TUTTI_UINT16, 1, false}},
    TypeRow{Code::UInt, 32, {TUTTI_UINT32, 1, false}},
    TypeRow{Code::UInt, 64, {TUTTI_UINT64, 1, false}},
    TypeRow{Code::Float, 16, {TUTTI_FLOAT16, 1, false}},
    TypeRow{Code::Float, 32, {TUTTI_FLOAT32, 1, false}},
    TypeRow{Code::Float, 64, {TUTTI_FLOAT64, 1, false}},
    TypeRow{Code::Bfloat, 16, {TUTTI_BFLOAT16, 1, false}},
    TypeRow{float8_e4m3fn, 8, {TUTTI_FLOAT8_E4M3, 1, false}},
    TypeRow{float8_e5m2, 8, {TUTTI_FLOAT8_E5M2, 1, false}},
    TypeRow{Code::Complex, 32, {TUTTI_FLOAT16, 2, false}},
    TypeRow{Code::Complex, 64, {TUTTI_FLOAT32, 2, false}},
    TypeRow{Code::Complex, 128, {TUTTI_FLOAT64, 2, false}},
    TypeRow{Code::Bool, 8, {TUTTI_UINT8, 1, true}},
};

struct OpRow {
    const char* name;
    tutti_op op;
    tutti_op logical;  // for bool: a sum is "any of them", a product "all of them"
    bool complex;
};

constexpr tutti_op none = -1;
constexpr std::array ops{
    OpRow{"sum", TUTTI_SUM, TUTTI_MAX, true},    OpRow{"avg", TUTTI_AVG, none, true},
    OpRow{"prod", TUTTI_PROD, TUTTI_MIN, false}, OpRow{"max", TUTTI_MAX, TUTTI_MAX, false},
    OpRow{"min", TUTTI_MIN, TUTTI_MIN, false},   OpRow{"band", TUTTI_BAND, TUTTI_MIN, false},
    OpRow{"bor", TUTTI_BOR, TUTTI_MAX, false},   OpRow{"bxor", TUTTI_BXOR, TUTTI_BXOR, false},
};

}  // namespace

Elements elements_of(nb::dlpack::dtype type) {
    for (const TypeRow& row : types)
        if (type.lanes == 1 && type.code == static_cast<uint8_t>(row.code) && type.bits == row.bits)
            return row.elements;
    throw nb::type_error(
        ("tutti has no elements of DLPack's type code " + std::to_string(type.code) + " with " +
         std::to_string(type.bits) +
         " bits. What to do: convert them, or pass a view as uint8 to move the bytes")
            .c_str());
}

Elements elements_named(const char* name) {
    std::string names;
    for (tutti_dtype dtype = 0; tutti_dtype_size(dtype) != 0; ++dtype) {
        const char* const known = tutti_dtype_name(dtype);
        if (std::strcmp(known, name) == 0) return {dtype, 1, false};
        names += names.empty() ? known : std::string(", ") + known;
    }
    throw nb::value_error(
        (std::string("unknown dtype '") + name + "'. What to do: pass one of " + names).c_str());
}

tutti_op op_of(const char* name, const Elements& elements) {
    std::string names;
    for (const OpRow& row : ops) {
        if (std::strcmp(row.name, name) == 0) {
            const tutti_op op = elements.boolean ? row.logical : row.op;
            if (op == none || (elements.parts == 2 && !row.complex))
                throw nb::type_error((std::string("the operator '") + name +
                                      "' is not defined for this dtype. What to do: pass another "
                                      "operator, or convert the array")
                                         .c_str());
            return op;
        }
        names += names.empty() ? row.name : std::string(", ") + row.name;
    }
    throw nb::value_error(
        (std::string("unknown operator '") + name + "'. What to do: pass one of " + names).c_str());
}

}  // namespace tutti_python
