// Arrays without gaps as arguments of functions that take one type, and as the library's views.
#pragma once

#include <isentropic/matrix_view.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <span>

namespace nb = nanobind;

namespace isentropic {

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
MatrixView<T> view(const Matrix<T>& a) {
  return {a.data(), a.shape(0), a.shape(1)};
}

template <class T>
std::span<T> span(const Vector<T>& a) {
  return {a.data(), a.shape(0)};
}

}  // namespace isentropic
