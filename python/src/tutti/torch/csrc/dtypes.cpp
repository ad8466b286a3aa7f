#include "dtypes.h"

#include <array>

namespace tutti_torch {
namespace {

using at::ScalarType;
using Op = c10d::ReduceOp;

enum class Kind : uint8_t { integer, floating, complex, boolean, opaque };

struct Row {
    ScalarType type;
    Element element;
    Kind kind;
};

// opaque: bytes that tutti can move but not add.
constexpr std::array rows{
    Row{ScalarType::Float, {TUTTI_FLOAT32, 1}, Kind::floating},
    Row{ScalarType::Double, {TUTTI_FLOAT64, 1}, Kind::floating},
    Row{ScalarType::Half, {TUTTI_FLOAT16, 1}, Kind::floating},
    Row{ScalarType::BFloat16, {TUTTI_BFLOAT16, 1}, Kind::floating},
    Row{ScalarType::Float8_e4m3fn, {TUTTI_FLOAT8_E4M3, 1}, Kind::floating},
    Row{ScalarType::Float8_e5m2, {TUTTI_FLOAT8_E5M2, 1}, Kind::floating},
    Row{ScalarType::Char, {TUTTI_INT8, 1}, Kind::integer},
    Row{ScalarType::Byte, {TUTTI_UINT8, 1}, Kind::integer},
    Row{ScalarType::Short, {TUTTI_INT16, 1}, Kind::integer},
    Row{ScalarType::UInt16, {TUTTI_UINT16, 1}, Kind::integer},
    Row{ScalarType::Int, {TUTTI_INT32, 1}, Kind::integer},
    Row{ScalarType::UInt32, {TUTTI_UINT32, 1}, Kind::integer},
    Row{ScalarType::Long, {TUTTI_INT64, 1}, Kind::integer},
    Row{ScalarType::UInt64, {TUTTI_UINT64, 1}, Kind::integer},
    Row{ScalarType::Bool, {TUTTI_UINT8, 1}, Kind::boolean},
    Row{ScalarType::ComplexFloat, {TUTTI_FLOAT32, 2}, Kind::complex},
    Row{ScalarType::ComplexDouble, {TUTTI_FLOAT64, 2}, Kind::complex},
    Row{ScalarType::ComplexHalf, {TUTTI_FLOAT16, 2}, Kind::complex},
    Row{ScalarType::Float8_e4m3fnuz, {TUTTI_UINT8, 1}, Kind::opaque},
    Row{ScalarType::Float8_e5m2fnuz, {TUTTI_UINT8, 1}, Kind::opaque},
};

const Row& row_of(ScalarType type, const char* operation) {
    for (const Row& row : rows)
        if (row.type == type) return row;
    C10_THROW_ERROR(TypeError, c10::str("tutti ", operation, ": tensors of ", type,
                                        " are not supported. What to do: send another view of "
                                        "the same bytes, such as tensor.view(torch.uint8)"));
}

const char* name_of(Op::RedOpType op) {
    switch (op) {
        case Op::SUM:
            return "SUM";
        case Op::AVG:
            return "AVG";
        case Op::PRODUCT:
            return "PRODUCT";
        case Op::MIN:
            return "MIN";
        case Op::MAX:
            return "MAX";
        case Op::BAND:
            return "BAND";
        case Op::BOR:
            return "BOR";
        case Op::BXOR:
            return "BXOR";
        case Op::PREMUL_SUM:
            return "PREMUL_SUM";
        default:
            return "an unknown operator";
    }
}

constexpr tutti_op none = -1;

tutti_op plain(Op::RedOpType op) {
    switch (op) {
        case Op::SUM:
        case Op::PREMUL_SUM:
            return TUTTI_SUM;
        case Op::AVG:
            return TUTTI_AVG;
        case Op::PRODUCT:
            return TUTTI_PROD;
        case Op::MIN:
            return TUTTI_MIN;
        case Op::MAX:
            return TUTTI_MAX;
        case Op::BAND:
            return TUTTI_BAND;
        case Op::BOR:
            return TUTTI_BOR;
        case Op::BXOR:
            return TUTTI_BXOR;
        default:
            return none;
    }
}

// A bool is a byte that is 0 or 1: a sum is "any of them", a product "all of them".
tutti_op logical(Op::RedOpType op) {
    switch (op) {
        case Op::SUM:
        case Op::MAX:
        case Op::BOR:
            return TUTTI_MAX;
        case Op::PRODUCT:
        case Op::MIN:
        case Op::BAND:
            return TUTTI_MIN;
        case Op::BXOR:
            return TUTTI_BXOR;
        default:
            return none;
    }
}

tutti_op operator_for(Kind kind, Op::RedOpType op) {
    const bool bitwise = op == Op::BAND || op == Op::BOR || op == Op::BXOR;
    const bool linear = op == Op::SUM || op == Op::AVG || op == Op::PREMUL_SUM;
    switch (kind) {
        case Kind::integer:
            return plain(op);
        case Kind::floating:
            return bitwise ? none : plain(op);
        case Kind::complex:
            return linear ? plain(op) : none;
        case Kind::boolean:
            return logical(op);
        case Kind::opaque:
            return none;
    }
    return none;
}

}  // namespace

Element element_of(ScalarType type, const char* operation) {
    return row_of(type, operation).element;
}

Reduction reduction_of(ScalarType type, Op::RedOpType op, const char* operation) {
    const Row& row = row_of(type, operation);
    const tutti_op found = operator_for(row.kind, op);
    if (found == none)
        C10_THROW_ERROR(TypeError, c10::str("tutti ", operation, ": ReduceOp.", name_of(op),
                                            " is not defined for tensors of ", type,
                                            ". What to do: use another operator, or convert the "
                                            "tensor"));
    return {row.element, found};
}

}  // namespace tutti_torch
