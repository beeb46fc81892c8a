// The implementations behind gemm_implementations(); see kernels/gemm.h for what each is.
#pragma once

#include "kernels/gemm.h"

namespace ms::kernels {

extern const GemmImplementation kGemmTiles;  // gemm_tiles.cpp
extern const GemmImplementation kGemmEigen;  // gemm_eigen.cpp
extern const GemmImplementation kGemmNaive;  // gemm_naive.cpp
#if MS_WITH_ONEDNN
extern const GemmImplementation kGemmOnednn;      // gemm_onednn.cpp
extern const GemmImplementation kGemmOnednnBf16;  // gemm_onednn.cpp
#endif

}  // namespace ms::kernels
