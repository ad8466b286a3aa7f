// Arrays of any library, as memory and a type.
#pragma once

#include <tutti/tutti.h>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace tutti_python {

/// Anything with DLPack or the buffer protocol, in host memory and in one piece; never copied.
using Input = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using Output = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;

struct Elements {
    tutti_dtype dtype;
    std::size_t parts;  ///< elements of dtype per element of the array
    bool boolean;
};

/// TypeError for a type that tutti cannot carry.
Elements elements_of(nanobind::dlpack::dtype type);
/// Finds a type by its name in tutti ("float32").
Elements elements_named(const char* name);
/// "sum" and so on; ValueError lists them.
tutti_op op_of(const char* name, const Elements& elements);

}  // namespace tutti_python
